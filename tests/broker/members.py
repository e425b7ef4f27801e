"""A cluster on one event loop: its brokers are in this process and share a metadata store in memory."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Self

from skylog.broker import Broker, ServerConfig
from skylog.broker.clustered import ClusterMembership, clustered_broker
from skylog.broker.partition import Partition
from skylog.cluster import PartitionImage
from skylog.cluster.embedded import EmbeddedSession, EmbeddedStore
from skylog.cluster.store import MetadataStore
from skylog.model import TopicPartition
from skylog.net.peer import Peer
from skylog.protocol.fetch import PartitionData
from skylog.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from skylog.protocol.produce import PartitionProduceResponse, ProduceResponse

from .raw import fetch_request, produce_request

PATIENCE_S = 20.0

SETTINGS = {
    "broker.rack": "rack-{node_id}",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
    "replica.lag.time.max.ms": "600000",  # a follower that has stopped stays in sync until a test says otherwise
}


class Members:
    """Brokers 1 to `size`. `settings` may contain {node_id}, and `of_single` has those of single brokers.

        async with Members(tmp_path) as members:
            await members.create("t")
            members.leader("t").append(...)

    A topic has one partition, with replicas on all brokers, of which the first one leads.
    """

    def __init__(
        self,
        path: Path,
        settings: Mapping[str, str] | None = None,
        size: int = 3,
        of_single: Mapping[int, Mapping[str, str]] | None = None,
    ) -> None:
        self._path = path
        self._of_single = of_single or {}
        self._settings = SETTINGS | dict(settings or {})
        self._store = EmbeddedStore(None)
        self._peers: dict[int, Peer] = {}
        self._ports: dict[int, int] = {}
        self.sessions: dict[int, EmbeddedSession] = {}
        self._node_ids = range(1, size + 1)
        self.brokers: dict[int, Broker] = {}

    async def __aenter__(self) -> Self:
        await asyncio.gather(*map(self.start, self._node_ids))
        await self.until(lambda: all(len(each.metadata.image.brokers) == len(self.brokers) for each in self.live()))
        return self

    async def __aexit__(self, *_: object) -> None:
        for peer in self._peers.values():
            peer.close()
        await asyncio.gather(*map(self.stop, list(self.brokers)))

    def live(self) -> list[Broker]:
        return list(self.brokers.values())

    async def start(self, node_id: int) -> None:
        chosen = {**self._settings, **self._of_single.get(node_id, {})}
        settings = {key: value.format(node_id=node_id) for key, value in chosen.items()}
        await self._start(node_id, ServerConfig.parse({"node.id": str(node_id), **settings}))

    async def _start(self, node_id: int, config: ServerConfig) -> None:
        async def open_session() -> MetadataStore:
            session = self.sessions[node_id] = self._store.open_session()
            return session

        broker = await clustered_broker(self._path / str(node_id), open_session, config)
        self._ports[node_id] = await broker.start("127.0.0.1", 0)
        self.brokers[node_id] = broker

    async def stop(self, node_id: int) -> None:
        await self.brokers.pop(node_id).stop()

    async def until(self, is_true: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not is_true():  # noqa: ASYNC110
                await asyncio.sleep(0.002)

    # -- partitions

    async def create(self, topic: str, replicas: tuple[int, ...] | None = None, **configs: str) -> None:
        """Create a topic, and wait until all replicas are open and have fetched."""
        replicas = replicas or tuple(self._node_ids)
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        await self.brokers[replicas[0]].topics.create(topic, [replicas], settings)
        await self.until(lambda: all(self.has_replica(node_id, topic) for node_id in replicas))
        await self.until(lambda: self._has_all_followers(topic))

    def has_replica(self, node_id: int, topic: str) -> bool:
        return self.brokers[node_id].replicas.find(TopicPartition(topic, 0)) is not None

    def _has_all_followers(self, topic: str) -> bool:
        leading = self.replica(self.image(topic).leader, topic).leading
        return leading is None or all(each.end_offset >= 0 for each in leading.followers.values())

    @property
    def controller_id(self) -> int:
        return self.live()[0].metadata.image.controller_id

    def image(self, topic: str) -> PartitionImage:
        return _partition(self.live()[0], topic)

    def replica(self, node_id: int, topic: str) -> Partition:
        found = self.brokers[node_id].replicas.find(TopicPartition(topic, 0))
        assert found is not None
        return found

    async def change(self, topic: str, **changes: Any) -> None:
        """Change the state of a partition in the metadata store, and wait until all brokers know."""
        broker = self.live()[0]
        before = broker.metadata.image.topics[topic]
        changed = dataclasses.replace(before.partitions[0], **changes)
        await broker.metadata.change_topic(before, lambda now: dataclasses.replace(now, partitions=(changed,)))
        await self.until(lambda: all(_partition(each, topic) == changed for each in self.live()))

    async def elect(self, topic: str, leader: int) -> None:
        await self.change(topic, leader=leader, leader_epoch=self.image(topic).leader_epoch + 1)

    def membership(self, node_id: int) -> ClusterMembership:
        membership = self.brokers[node_id].membership
        assert isinstance(membership, ClusterMembership)
        return membership

    async def stop_following(self, *node_ids: int) -> None:
        """Stop the fetches of brokers."""
        for node_id in node_ids:
            await self.membership(node_id).fetchers.stop()

    def follow(self, *node_ids: int) -> None:
        """Let brokers fetch again."""
        for node_id in node_ids:
            self.membership(node_id).fetchers.start()

    # -- clients

    async def peer(self, node_id: int) -> Peer:
        """Return the connection to a broker that all requests of a test use."""
        if node_id not in self._peers:
            self._peers[node_id] = await self.connect(node_id)
        return self._peers[node_id]

    async def connect(self, node_id: int) -> Peer:
        return await Peer.connect("127.0.0.1", self._ports[node_id], client_id="test")

    def port(self, node_id: int) -> int:
        return self._ports[node_id]

    async def produce(
        self, node_id: int, topic: str, batch: bytes | bytearray, *, acks: int = -1, timeout_ms: int = 10_000
    ) -> PartitionProduceResponse:
        row: PartitionProduceResponse = (await self.ask_to_produce(node_id, topic, batch, acks, timeout_ms))[1]
        return row

    async def ask_to_produce(
        self,
        node_id: int,
        topic: str,
        batch: bytes | bytearray,
        acks: int = -1,
        timeout_ms: int = 10_000,
        version: int = 11,
    ) -> tuple[ProduceResponse, PartitionProduceResponse]:
        request = produce_request(topic, batch, acks=acks, timeout_ms=timeout_ms)
        response = await (await self.peer(node_id)).ask(request, version)
        return response, response.responses[0].partition_responses[0]

    async def fetch(self, node_id: int, topic: str, offset: int, *, version: int = 12, **options: Any) -> PartitionData:
        found: PartitionData = (await self.ask_to_fetch(node_id, topic, offset, version=version, **options))[1]
        return found

    async def ask_to_fetch(
        self, node_id: int, topic: str, offset: int, *, version: int = 12, rack: str = "", **options: Any
    ) -> tuple[Any, PartitionData]:
        """Fetch over a connection of its own: a parked fetch blocks the requests behind it."""
        name = topic if version < 13 else self.live()[0].metadata.image.topics[topic].topic_id
        request = dataclasses.replace(fetch_request(name, offset, **options), rack_id=rack)
        peer = await self.connect(node_id)
        try:
            response = await peer.ask(request, version)
        finally:
            peer.close()
        return response, response.responses[0].partitions[0]

    async def list_offset(
        self, node_id: int, topic: str, timestamp: int, version: int = 9
    ) -> ListOffsetsPartitionResponse:
        row = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[row])])
        response = await (await self.peer(node_id)).ask(request, version)
        found: ListOffsetsPartitionResponse = response.topics[0].partitions[0]
        return found


def _partition(broker: Broker, topic: str) -> PartitionImage:
    return broker.metadata.image.topics[topic].partitions[0]


def in_cluster(
    path: Path,
    scenario: Callable[[Members], Awaitable[None]],
    settings: Mapping[str, str] | None = None,
    **options: Any,
) -> None:
    """Run a scenario with the brokers of a cluster. The options are those of `Members`."""

    async def run() -> None:
        async with Members(path, settings, **options) as members:
            await scenario(members)

    asyncio.run(run())
