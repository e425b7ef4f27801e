"""State kept in an internal topic, such as the groups of a coordinator.

A key belongs to the same partition as in Kafka, and the leader of that partition serves it. A change is appended to the
partition before it takes effect::

    not served ──begins to lead──▶ loading ──replayed and replicated──▶ served
        ▲                          │  ▲   │                               │
        │                          └──┘   │                               │
        │                       it failed │                               │
        └────────stops leading────────────┴───────────────────────────────┘

Each leadership has a state of its own, a shard. It starts empty, is filled from the log, and is dropped when the
leadership ends. So nothing that began in one leadership can change the state of a later one: it holds the old shard,
and the old `Leadership` appends no more. A load that fails is tried again with a new shard, so that only whole ones are
served.

Records above the high watermark are replayed too: the former leader may have acknowledged them. They may also be lost
with this leader. So nothing is served, and no decision of a transaction is carried out, until the replicas in sync have
all that was replayed. Otherwise an offset that a consumer has seen could move back, and a transaction could be
committed in one partition and aborted in another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol, Self, TypeVar

from skylog.broker.internal_topics import REPLICATION_FACTOR_KEYS
from skylog.broker.leadership import Leadership, not_coordinator
from skylog.broker.partition import Role
from skylog.cluster import ClusterImage, SessionExpiredError
from skylog.cluster.image import NO_LEADER
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.limited_logger import LimitedLogger
from skylog.model import TopicPartition
from skylog.records import InvalidBatchError

if TYPE_CHECKING:
    from skylog.broker.broker import Broker
    from skylog.broker.partition import Partition

logger = logging.getLogger(__name__)
limited_logger = LimitedLogger(logger)

LOADS_AT_ONCE: Final = 2  # parsing needs the interpreter, so more would only compete with the event loop
FIRST_RETRY_S: Final = 1.0  # between two attempts to load a partition
LAST_RETRY_S: Final = 60.0
CREATION_SECONDS: Final = 5.0  # how long to wait for a topic that another broker creates


class Shard(Protocol):
    """The in-memory state of one partition during one leadership."""

    def replay(self, key: bytes, value: bytes | None, producer_id: int) -> None:
        """Apply a record of the partition. One of a transaction has the id of its producer, others NO_PRODUCER_ID."""

    def replay_marker(self, producer_id: int, commits: bool) -> None:
        """Apply the end of a producer's transaction in the partition."""

    def take_over(self, failed: Self) -> None:
        """Called on the shard that replaces one whose load has failed. Take what was noted for after the load."""

    async def loaded(self) -> None:
        """Called when the partition has been replayed and replicated to its end. Its keys are served when this returns.

        Not called for a partition without records, which is served immediately.
        """

    def close(self) -> None:
        """Called when the leadership is over. Reject the requests that wait."""

    async def free(self) -> None:
        """Called after `close`, to free a large state without blocking the event loop."""


S = TypeVar("S", bound=Shard)


@dataclass(slots=True)
class _Tenure(Generic[S]):
    leadership: Leadership
    shard: S
    load: asyncio.Task[None] | None = None


class StateTopic(Generic[S]):
    """An internal topic and the shards of its partitions. Use it on the event loop only.

    Failed loads are counted in `failures`. Their partitions stay in the loading state until an attempt succeeds: better
    no offset than a wrong one.
    """

    def __init__(self, name: str, broker: Broker, new_shard: Callable[[Leadership], S]) -> None:
        self.name = name
        self._broker = broker
        self._new_shard = new_shard
        self._tenures: dict[int, _Tenure[S]] = {}
        self._served: dict[int, S] = {}
        self._loading = asyncio.Semaphore(LOADS_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._creating = asyncio.Lock()
        self._exists = asyncio.Event()
        self.failures = 0

    def start(self) -> None:
        """Serve the partitions that this broker leads, from now on."""
        self._broker.metadata.listen(self._on_image)
        self._on_image(None, self._broker.metadata.image)
        self._broker.replicas.on_leadership(self._on_leadership)
        for partition in self._broker.replicas.of_topic(self.name):
            if partition.is_leader:
                self._begin(partition)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- serving

    @property
    def partition_count(self) -> int:
        """0 while the topic does not exist."""
        topic = self._broker.metadata.image.topics.get(self.name)
        return len(topic.partitions) if topic is not None else 0

    def partition_for(self, key: str) -> TopicPartition:
        """Return the partition of a key. Raises COORDINATOR_NOT_AVAILABLE while the topic does not exist."""
        count = self.partition_count
        if not count:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.name} does not exist yet")
        return TopicPartition(self.name, partition_of(key, count))

    def shard(self, key: str) -> S:
        """Return the state of a key's partition.

        Raises NOT_COORDINATOR if this broker does not lead the partition, COORDINATOR_LOAD_IN_PROGRESS if it does not
        serve it yet.
        """
        count = self.partition_count
        if not count:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "send FindCoordinator first")
        index = partition_of(key, count)
        shard = self._served.get(index)
        if shard is None:
            if self._leads(index):
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"'{key}' is being loaded")
            raise not_coordinator()
        return shard

    def _leads(self, index: int) -> bool:
        """Whether this broker leads a partition. An offline one, too, until another broker leads it."""
        role = self._broker.replicas.role_of(TopicPartition(self.name, index))
        return role is Role.LEADER or (role is Role.OFFLINE and self._leader(index) == self._broker.identity.node_id)

    def _leader(self, index: int) -> int:
        return self._broker.metadata.image.topics[self.name].partitions[index].leader

    @property
    def is_loading(self) -> bool:
        """Whether this broker leads a partition that it does not serve yet."""
        return any(index not in self._served and self._leads(index) for index in range(self.partition_count))

    def served(self) -> list[S]:
        """Return the shards that are served."""
        return list(self._served.values())

    def shard_of(self, index: int) -> S | None:
        """Return the shard of a partition, also while it is being loaded."""
        tenure = self._tenures.get(index)
        return tenure.shard if tenure is not None else None

    def all_shards(self) -> list[S]:
        """Return the shards of this broker, including those that are being loaded."""
        return [tenure.shard for tenure in self._tenures.values()]

    # -- finding the coordinator

    def coordinator_of(self, key: str) -> int:
        """Return the id of the broker that serves a key, NO_LEADER if none does."""
        count = self.partition_count
        return self._leader(partition_of(key, count)) if count else NO_LEADER

    async def ensure_exists(self) -> None:
        """Create the topic unless it exists. Raises KafkaError."""
        if not self.partition_count:
            async with self._creating:
                if not self.partition_count:
                    await self._create()

    async def _create(self) -> None:
        topics = self._broker.topics
        try:
            await topics.create(self.name, topics.plan(self.name))
        except SessionExpiredError as error:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        except KafkaError as error:
            if error.code is ErrorCode.INVALID_REPLICATION_FACTOR:
                raise self._too_few_brokers(error) from error
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            await self._wait_for_creation()

    def _too_few_brokers(self, error: KafkaError) -> KafkaError:
        message = "cannot create %s: %s; start more brokers, or set a lower %s on every broker"
        arguments = (self.name, error.message, REPLICATION_FACTOR_KEYS[self.name])
        limited_logger.error(message, *arguments)
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message % arguments)

    async def _wait_for_creation(self) -> None:
        """Wait for the topic that another broker has just created."""
        try:
            async with asyncio.timeout(CREATION_SECONDS):
                await self._exists.wait()
        except TimeoutError:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.name} is being created") from None

    def _on_image(self, _: ClusterImage | None, now: ClusterImage) -> None:
        if self.name in now.topics:
            self._exists.set()
        else:
            self._exists.clear()

    # -- leaderships

    def _on_leadership(self, partition: Partition, leads: bool) -> None:
        if partition.name.topic == self.name:
            if leads:
                self._begin(partition)
            else:
                self._end(partition)

    def _begin(self, partition: Partition) -> None:
        """Load a partition that this broker now leads. One without records is served immediately."""
        leadership = Leadership(partition, self._broker)
        tenure = self._tenures[partition.name.partition] = _Tenure(leadership, self._new_shard(leadership))
        if leadership.has_records:
            tenure.load = self._spawn(self._load(tenure))
        else:
            self._serve(tenure)

    def _serve(self, tenure: _Tenure[S]) -> None:
        self._served[tenure.leadership.partition.name.partition] = tenure.shard
        tenure.leadership.is_served = True

    def _end(self, partition: Partition) -> None:
        index = partition.name.partition
        tenure = self._tenures.pop(index)
        tenure.leadership.is_over = True
        self._served.pop(index, None)
        if tenure.load is not None:
            tenure.load.cancel()
        tenure.shard.close()
        self._spawn(tenure.shard.free())

    async def _load(self, tenure: _Tenure[S]) -> None:
        """Replay a partition, then serve it. Cancelled if the leadership ends first."""
        delay_s = FIRST_RETRY_S
        while (error := await self._fill(tenure)) is not None:
            self.failures += 1
            logger.error(
                "cannot load %s: %r; its state is unavailable, and the next attempt follows in %.0f s",
                tenure.leadership.partition.name,
                error,
                delay_s,
                exc_info=error if delay_s == FIRST_RETRY_S and not isinstance(error, SkylogError) else None,
            )
            scrubber = self._broker.membership.scrubber
            if isinstance(error, InvalidBatchError) and scrubber is not None:
                scrubber.suspect(tenure.leadership.partition.log)  # so that it is repaired
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, LAST_RETRY_S)
        if not tenure.leadership.is_over:
            self._serve(tenure)

    async def _fill(self, tenure: _Tenure[S]) -> Exception | None:
        """Fill the shard of a leadership. If that fails, replace it by an empty one and return the error."""
        leadership, shard = tenure.leadership, tenure.shard
        try:
            async with self._loading:
                await leadership.replay(shard.replay, shard.replay_marker)
            await leadership.replicated()
            await shard.loaded()
            return None
        except Exception as error:
            tenure.shard = self._new_shard(leadership)
            tenure.shard.take_over(shard)
            shard.close()
            self._spawn(shard.free())
            return error


def partition_of(key: str, count: int) -> int:
    """Return the partition of a key as Kafka computes it: the absolute value of Java's `String.hashCode`."""
    value = 0
    encoded = key.encode("utf-16-be")
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    signed = value - (1 << 32) if value & 0x80000000 else value
    return (0 if signed == -(1 << 31) else abs(signed)) % count
