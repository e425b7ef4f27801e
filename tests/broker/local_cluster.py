"""The brokers of a cluster in this process: they share a metadata store in memory and one event loop in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from skylog.broker import Broker, ServerConfig
from skylog.broker.clustered import clustered_broker
from skylog.cluster import EmbeddedSession, EmbeddedStore, PartitionImage
from skylog.errors import ErrorCode, SkylogError
from skylog.model import TopicPartition
from skylog.protocol.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from skylog.testing.loop_thread import LoopThread

from .process import until
from .raw import RawClient

T = TypeVar("T")


class LocalCluster:
    """Brokers 1 to `count`. `settings` are those of all brokers, `own` those of single ones by id."""

    def __init__(
        self,
        path: Path,
        count: int = 3,
        settings: Mapping[str, str] | None = None,
        own: Mapping[int, Mapping[str, str]] | None = None,
    ) -> None:
        self._thread = LoopThread("cluster")
        self._path = path
        self._settings = settings or {}
        self._own = own or {}
        self._count = count
        self._clients: dict[int, RawClient] = {}
        self.store = EmbeddedStore(None)
        self.sessions: dict[int, EmbeddedSession] = {}
        self.brokers: dict[int, Broker] = {}
        self.without_store: set[int] = set()
        """Brokers that can open no more sessions."""
        self.ports: dict[int, int] = {}

    def __enter__(self) -> Self:
        self.start(*range(1, self._count + 1))
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(*self.brokers)
        self._thread.close()

    # -- brokers

    def start(self, *node_ids: int) -> None:
        """Start brokers, and wait until all that run know of each other and of a controller."""
        for node_id in node_ids:
            self.ports[node_id] = self.run(self._start(node_id))
        until(self._is_formed, "the cluster")

    async def _start(self, node_id: int) -> int:
        async def open_session() -> EmbeddedSession:
            if node_id in self.without_store:
                raise SkylogError("the metadata store cannot be reached")
            session = self.sessions[node_id] = self.store.open_session()
            return session

        config = ServerConfig.parse({**self._settings, **self._own.get(node_id, {}), "node.id": str(node_id)})
        broker = await clustered_broker(self._path / f"broker-{node_id}", open_session, config)
        self.brokers[node_id] = broker
        return await broker.start("127.0.0.1", 0)

    def _is_formed(self) -> bool:
        present = set(self.brokers)
        images = [self.look(node_id, lambda broker: broker.metadata.image) for node_id in present]
        return all(set(image.brokers) == present and image.controller_id in present for image in images)

    def stop(self, *node_ids: int) -> None:
        for node_id in node_ids:
            client = self._clients.pop(node_id, None)
            if client is not None:
                client.close()
            self.run(self.brokers.pop(node_id).stop())

    def run(self, coroutine: Any) -> Any:
        return self._thread.run(asyncio.wait_for(coroutine, 30))

    def look(self, node_id: int, question: Callable[[Broker], T]) -> T:
        """Call `question` with a broker on the event loop. Return the result."""
        return self._thread.call(question, self.brokers[node_id])

    # -- requests

    def client(self, node_id: int = 1) -> RawClient:
        if node_id not in self._clients:
            self._clients[node_id] = RawClient(self.ports[node_id])
        return self._clients[node_id]

    def create(self, name: str, *assignment: list[int], through: int = 1, **configs: str) -> str:
        """Create a topic with these replicas, and wait until they are open. Configs have underscores."""
        rows = [CreatableReplicaAssignment(partition_index=i, broker_ids=ids) for i, ids in enumerate(assignment)]
        wanted = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=rows,
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        (result,) = self.client(through).ask(CreateTopicsRequest(topics=[wanted]), 7).topics
        assert result.error_code == ErrorCode.NONE, result.error_message
        for node_id in self.brokers:
            own = [TopicPartition(name, index) for index, ids in enumerate(assignment) if node_id in ids]
            until(lambda: self.look(node_id, lambda broker: _has_opened(broker, name, own)), f"{name} on {node_id}")  # noqa: B023
        return name

    # -- state

    def partition(self, topic: str, index: int = 0, seen_by: int | None = None) -> PartitionImage:
        node_id = seen_by or next(iter(self.brokers))
        return self.look(node_id, lambda broker: broker.metadata.image.topics[topic].partitions[index])

    def leader_of(self, topic: str, index: int = 0) -> int:
        """Return the leader of a partition, when there is one that runs."""

        def found() -> int:
            leader = self.partition(topic, index).leader
            return leader if leader in self.brokers else 0

        return until(found, f"a leader of {topic}-{index}")

    def until_all_in_sync(self, topic: str) -> None:
        """Wait until all replicas of a topic on the brokers that run are in sync."""

        def are_in_sync() -> bool:
            topics = self.look(next(iter(self.brokers)), lambda broker: broker.metadata.image.topics)
            running = self.brokers.keys()
            return all(running & set(each.replicas) <= set(each.in_sync_replicas) for each in topics[topic].partitions)

        until(are_in_sync, f"the replicas of {topic}")

    def until_in_sync(self, topic: str, node_ids: Iterable[int], index: int = 0) -> None:
        """Wait until these replicas of a partition are in sync, and no others."""
        wanted = set(node_ids)
        until(lambda: set(self.partition(topic, index).in_sync_replicas) == wanted, f"{wanted} in sync")


def _has_opened(broker: Broker, topic: str, replicas: Iterable[TopicPartition]) -> bool:
    """Whether a broker knows a topic and has opened these replicas, or has tried to."""
    is_known = topic in broker.metadata.image.topics
    return is_known and all(broker.replicas.role_of(each) is not None for each in replicas)
