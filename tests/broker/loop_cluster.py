"""Brokers of a cluster on the event loop of a test, and a broker whose fetches the test sends by hand.

    async with LoopCluster(tmp_path) as cluster:
        await cluster.start(1, 2)
        await cluster.create("t", [1, 2])

They share a metadata store in memory, and use real sockets and files.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar, cast
from uuid import UUID

from skylog.broker import Broker, ServerConfig
from skylog.broker.clustered import ClusterMembership, clustered_broker
from skylog.broker.partition import ALL, Partition
from skylog.cluster import (
    BrokerImage,
    EmbeddedSession,
    EmbeddedStore,
    EntryChange,
    MetadataStore,
    PartitionImage,
    TopicImage,
)
from skylog.cluster.metadata import BROKERS, INCARNATIONS, TOPICS
from skylog.cluster.store import Operation
from skylog.model import TopicPartition
from skylog.net.peer import Peer
from skylog.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from skylog.records import Record, build_batch, iterate_batches, read_records, stamp_offset

from .raw import batch_of

T = TypeVar("T")
PATIENCE_S = 20.0
SETTINGS = {"log.cleaner.enable": "false", "replica.fetch.wait.max.ms": "200"}


async def soon(condition: Callable[[], T], what: str = "the condition") -> T:
    """Wait until `condition` is true, and return its value."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while not (found := condition()):
        assert asyncio.get_running_loop().time() < deadline, f"waited {PATIENCE_S} s for {what}"
        await asyncio.sleep(0.002)
    return found


class Gate:
    """Holds the commits of one broker that change topics, while it is closed."""

    def __init__(self) -> None:
        self._is_open = asyncio.Event()
        self._is_open.set()
        self.waiting = 0

    def close(self) -> None:
        self._is_open.clear()

    def open(self) -> None:
        self._is_open.set()

    async def pass_through(self, operations: Sequence[Operation]) -> None:
        if any(operation.path.startswith(TOPICS) for operation in operations):
            self.waiting += 1
            await self._is_open.wait()
            self.waiting -= 1


class GatedSession(EmbeddedSession):
    """A session whose commits wait at a gate."""

    def __init__(self, store: EmbeddedStore, gate: Gate) -> None:
        super().__init__(store)
        self._gate = gate

    async def commit(self, operations: Sequence[Operation]) -> None:
        await self._gate.pass_through(operations)
        await super().commit(operations)


class LoopCluster:
    """Brokers by node id. `sessions` has the present session of each with the store, `gates` hold their commits."""

    def __init__(self, path: Path, settings: Mapping[str, str] | None = None) -> None:
        self.path = path
        self.store = EmbeddedStore(None)
        self.brokers: dict[int, Broker] = {}
        self.sessions: dict[int, EmbeddedSession] = {}
        self.gates: defaultdict[int, Gate] = defaultdict(Gate)
        self._settings = {**SETTINGS, **(settings or {})}
        self._followers: list[FollowerByHand] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for follower in self._followers:
            follower.close()
        for node_id in list(self.brokers):
            await self.crash(node_id)

    # -- brokers

    async def start(self, *node_ids: int, **settings: str) -> None:
        """Start brokers one after the other. Settings are named with underscores."""
        for node_id in node_ids:
            given = {key.replace("_", "."): value for key, value in settings.items()}
            config = ServerConfig.parse({**self._settings, **given, "node.id": str(node_id)})
            broker = await clustered_broker(self.data_dir(node_id), lambda n=node_id: self._open(n), config)  # type: ignore[misc]
            try:
                await broker.start("127.0.0.1", 0)
            except BaseException:
                await self._end(node_id, broker)
                raise
            self.brokers[node_id] = broker

    async def _open(self, node_id: int) -> MetadataStore:
        session = self.sessions[node_id] = GatedSession(self.store, self.gates[node_id])
        self.store._sessions.append(session)
        return session

    def data_dir(self, node_id: int) -> Path:
        return self.path / f"broker-{node_id}"

    async def crash(self, node_id: int) -> None:
        """End a broker without a clean stop. Its session has expired; what it wrote is in its files."""
        broker = self.brokers.pop(node_id)
        await broker.listener.stop(0)
        broker.pause_probe.stop()
        await broker.mirrors.stop()
        await broker.coordinator.stop()
        await broker.membership.stop()
        await broker.compactor.stop()
        await broker.housekeeping.stop()
        await self._end(node_id, broker)

    async def _end(self, node_id: int, broker: Broker) -> None:
        await self.sessions[node_id].close()
        for executor in (broker.codec, broker.opener, broker.searcher, broker.executor):
            executor.shutdown()
        os.close(broker.log_dir._lock)

    async def stop(self, node_id: int) -> None:
        await self.brokers.pop(node_id).stop()

    async def expire(self, node_id: int) -> None:
        """Let a session expire, and wait until the broker has joined again."""
        before = self.membership(node_id).member.incarnation
        await self.sessions[node_id].expire()
        await soon(lambda: self._has_joined(node_id, before), f"broker {node_id}")

    def _has_joined(self, node_id: int, before: int) -> bool:
        registered = self.brokers[node_id].metadata.image.brokers.get(node_id)
        return registered is not None and registered.incarnation > before and self.brokers[node_id].replicas.may_lead

    def membership(self, node_id: int) -> ClusterMembership:
        return cast(ClusterMembership, self.brokers[node_id].membership)

    # -- topics

    async def create(self, name: str, *assignment: Sequence[int], **configs: str) -> TopicImage:
        """Create a topic, and wait until its replicas are open. Configs are named with underscores."""
        broker = next(iter(self.brokers.values()))
        topic = await broker.topics.create(
            name, assignment, {key.replace("_", "."): value for key, value in configs.items()}
        )
        for index, ids in enumerate(assignment):
            for node_id in ids:
                if node_id in self.brokers:
                    await soon(lambda n=node_id, i=index: self.find(n, name, i), f"{name}-{index} on {node_id}")  # type: ignore[misc]
        return topic

    async def change(self, topic: str, **state: Any) -> None:
        """Give partition 0 another state in the store, as a controller or an operator would."""
        metadata = next(iter(self.brokers.values())).metadata

        def decide(now: TopicImage) -> TopicImage:
            return replace(now, partitions=(replace(now.partitions[0], **state), *now.partitions[1:]))

        await metadata.change_topic(metadata.image.topics[topic], decide)

    def image(self, topic: str = "t", index: int = 0, seen_by: int | None = None) -> PartitionImage:
        broker = self.brokers[seen_by or next(iter(self.brokers))]
        return broker.metadata.image.topics[topic].partitions[index]

    def find(self, node_id: int, topic: str = "t", index: int = 0) -> Partition | None:
        return self.brokers[node_id].replicas.find(TopicPartition(topic, index))

    def partition(self, node_id: int, topic: str = "t", index: int = 0) -> Partition:
        found = self.find(node_id, topic, index)
        assert found is not None
        return found

    async def until_in_sync(self, *node_ids: int, topic: str = "t", index: int = 0) -> None:
        await soon(lambda: set(self.image(topic, index).in_sync_replicas) == set(node_ids), f"{node_ids} in sync")

    # -- records

    def append(self, node_id: int, *values: bytes, acks: int = ALL, topic: str = "t") -> Awaitable[None]:
        """Append a batch at the leader, and return when it is committed under `acks`."""
        broker, partition = self.brokers[node_id], self.partition(node_id, topic)
        appended = partition.append(memoryview(batch_of(*values)), broker.clock.now_ms(), acks)
        return broker.commits.committed(partition, appended, acks) or _done()

    def values(self, node_id: int, topic: str = "t", index: int = 0) -> list[bytes | None]:
        return values_of(self.partition(node_id, topic, index))

    # -- a broker by hand

    async def by_hand(self, node_id: int, leader: int) -> FollowerByHand:
        """Register a broker that does nothing by itself, and connect it to a leader."""
        follower = FollowerByHand(node_id, self, leader)
        self._followers.append(follower)
        await follower.listen()
        await follower.register()
        broker = self.brokers[leader]
        follower.peer = await Peer.connect("127.0.0.1", broker.endpoints.port, client_id=f"by-hand-{node_id}")
        await soon(lambda: node_id in broker.metadata.image.brokers)
        return follower


async def _done() -> None:
    pass


def values_of(partition: Partition) -> list[bytes | None]:
    """Return the values of all records in a replica's log, committed or not."""
    log = partition.log
    offset = log.log_start_offset
    values: list[bytes | None] = []
    while (found := log.read(offset, 1 << 20)) is not None:
        data = found.read()
        for position, header in iterate_batches(data):
            values += [record.value for record in read_records(data[position : position + header.size_bytes])]
            assert header.end_offset > offset, "the log goes back"
            offset = header.end_offset
    return values


class FollowerByHand:
    """A registered broker without a process: the test sends its fetches. It fetches partition 0 of topics."""

    def __init__(self, node_id: int, cluster: LoopCluster, leader: int) -> None:
        self.node_id = node_id
        self.incarnation = 0
        self.peer: Peer
        self._server: asyncio.Server | None = None
        self._cluster = cluster
        self._leader = leader
        self._session = cluster.store.open_session()
        self._session_id = self._session_epoch = 0

    async def listen(self) -> None:
        """Accept connections: the controller takes a broker for dead that refuses them."""
        self._server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)

    def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.peer.close()

    async def register(self) -> None:
        """Begin another incarnation, as a broker that starts."""
        path, registration = f"{INCARNATIONS}{self.node_id}", f"{BROKERS}{self.node_id}"
        present = await self._session.load("/")
        version = present[path].version if path in present else 0
        changes = [EntryChange(path, {"directory_id": "by hand"}, version)]
        if registration in present:
            changes.append(EntryChange(registration, None, present[registration].version))
        self.incarnation = version + 1
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        image = BrokerImage(self.node_id, "127.0.0.1", port, incarnation=self.incarnation, directory_id="by hand")
        changes.append(EntryChange(registration, image.to_value(), 0, ephemeral=True))
        await self._session.commit(changes)

    async def leave(self) -> None:
        await self._session.close()

    async def fetch(
        self,
        offset: int,
        epoch: int = -1,
        topic: str = "t",
        *,
        leader_epoch: int | None = None,
        incarnation: int | None = None,
        max_wait_ms: int = 0,
    ) -> PartitionData | None:
        """Fetch from an offset, with the epoch of the last record. Return the answer of the partition, if any."""
        image = self._cluster.brokers[self._leader].metadata.image.topics[topic]
        current = image.partitions[0].leader_epoch if leader_epoch is None else leader_epoch
        row = FetchPartition(
            partition=0,
            current_leader_epoch=current,
            fetch_offset=offset,
            last_fetched_epoch=epoch,
            log_start_offset=0,
            partition_max_bytes=1 << 20,
        )
        return await self.send([(image.topic_id, [row])], incarnation=incarnation, max_wait_ms=max_wait_ms)

    async def send(
        self,
        rows: Sequence[tuple[UUID, list[FetchPartition]]] = (),
        *,
        incarnation: int | None = None,
        max_wait_ms: int = 0,
    ) -> PartitionData | None:
        """Send rows in the fetch session, and return the first partition of the response."""
        response = await self.ask(rows, incarnation=incarnation, max_wait_ms=max_wait_ms)
        assert response.error_code == 0, response.error_code
        return next((row for topic in response.responses for row in topic.partitions), None)

    async def ask(
        self,
        rows: Sequence[tuple[UUID, list[FetchPartition]]] = (),
        *,
        incarnation: int | None = None,
        max_wait_ms: int = 0,
        max_bytes: int = 1 << 24,
    ) -> FetchResponse:
        request = FetchRequest(
            replica_state=ReplicaState(
                replica_id=self.node_id, replica_epoch=self.incarnation if incarnation is None else incarnation
            ),
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=[FetchTopic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in rows],
        )
        response = cast(FetchResponse, await self.peer.ask(request, 17))
        if response.error_code == 0:
            self._session_id = response.session_id
            self._session_epoch += 1
        return response

    async def join(self, offset: int, epoch: int = 0, topic: str = "t") -> None:
        """Fetch from the end of the leader's log until this broker is in sync."""
        await self.fetch(offset, epoch, topic)
        await soon(lambda: self.node_id in self._cluster.image(topic).in_sync_replicas, "the in-sync set")


def a_batch_of(*values: bytes, epoch: int = 0, base_offset: int = 0) -> bytearray:
    """Return a batch as a leader has it: with its offset and epoch."""
    batch = build_batch([Record(value, b"k", 1000) for value in values])
    stamp_offset(batch, base_offset, epoch)
    return batch
