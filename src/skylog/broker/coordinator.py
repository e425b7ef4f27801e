"""The coordinator of consumer groups: the shell around the pure state machines of `groups`.

Groups and offsets live in the internal topic `__consumer_offsets`; a group belongs to the partition that Kafka would
give it. What is acknowledged has been appended there first, under the same promise as any topic. At start the
partitions are read back; until then their groups answer COORDINATOR_LOAD_IN_PROGRESS.

A group says when it wants to be ticked next; one in which nothing can run out costs nothing. Whatever is due of a group
happens before a request about it is answered.

Sessions and rebalances run on the monotonic clock, so that a jump of the wall clock throws nobody out, less the time in
which this process stood still: what members said meanwhile has not been read yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from skylog.broker.turn import Turn
from skylog.cluster import ClusterImage, TopicImage
from skylog.errors import ErrorCode, KafkaError
from skylog.groups import (
    Effect,
    Group,
    GroupConfig,
    Groups,
    GroupTimers,
    JoinAnswer,
    StoredRecord,
    StoreGroup,
    SyncAnswer,
)
from skylog.model import CONSUMER_OFFSETS_TOPIC, TopicPartition
from skylog.records import Record, build_batch, check_batch, read_records
from skylog.storage import FileSlice

if TYPE_CHECKING:
    from skylog.broker.broker import Broker
    from skylog.broker.partition import Partition

logger = logging.getLogger(__name__)

TICK_SECONDS: Final = 0.1
STALL_SECONDS: Final = 1.0  # longer between two looks at the clock than any load explains
_LOAD_BYTES: Final = 4 * 1024 * 1024
_ERRORS_OF_STORING: Final = {
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}


class Coordinator:
    """Every group of this broker. Lives on the event loop's thread. What fails unasked is counted in `failures`."""

    def __init__(self, broker: Broker, config: GroupConfig) -> None:
        self._broker = broker
        self._config = config
        self.groups = Groups(config)
        self._timers = GroupTimers()
        self._loading: set[int] = set()
        self._in_flight: Counter[str] = Counter()  # groups with records on their way to the disk
        self._last_look = 0.0
        self._stalled = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self._forgetting: set[asyncio.Task[None]] = set()
        self._creating = asyncio.Lock()
        self.failures = 0

    def start(self) -> None:
        self._last_look = asyncio.get_running_loop().time()
        self._broker.metadata.listen(self._on_image)
        partitions = self._broker.partitions.of_topic(CONSUMER_OFFSETS_TOPIC)
        self._loading = set(range(self._partition_count()))  # one that is offline stays unavailable until a restart
        if partitions:
            self._tasks.append(asyncio.create_task(self._load(partitions)))
        expire_seconds = self._config.offsets_retention_check_interval_ms / 1000
        self._tasks.append(asyncio.create_task(self._repeat(TICK_SECONDS, self.tick_due)))
        self._tasks.append(asyncio.create_task(self._repeat(expire_seconds, self.expire_offsets)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._forgetting, return_exceptions=True)

    def now_ms(self) -> int:
        """The time by which members are judged. It does not run while the event loop stands still."""
        look = asyncio.get_running_loop().time()
        if look - self._last_look > STALL_SECONDS:
            self._stalled += look - self._last_look
        self._last_look = look
        return int((self._broker.clock.monotonic() - self._stalled) * 1000)

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    # -- the offsets topic

    async def ensure_topic(self) -> None:
        """Create the offsets topic when the first group is asked for."""
        async with self._creating:
            if CONSUMER_OFFSETS_TOPIC in self._broker.metadata.image.topics:
                return
            topics = self._broker.topics
            await topics.create(CONSUMER_OFFSETS_TOPIC, topics.plan(CONSUMER_OFFSETS_TOPIC))

    def check(self, group_id: str, *, may_be_empty: bool = False) -> None:
        """Raise unless this broker can speak for the group now; what is due of the group happens first.

        Offsets may be kept without a name, members not.
        """
        if not group_id and not may_be_empty:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group needs a name")
        self._partition(group_id)
        group = self.groups.find(group_id)
        if group is not None and group.next_tick_ms is not None:
            self._tick(group, self.now_ms())

    def _partition(self, group_id: str) -> Partition:
        count = self._partition_count()
        if not count:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "ask FindCoordinator first")
        index = partition_of(group_id, count)
        if index in self._loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"group '{group_id}' is being loaded")
        return self._broker.partitions.get(CONSUMER_OFFSETS_TOPIC, index)

    def _partition_count(self) -> int:
        topic = self._broker.metadata.image.topics.get(CONSUMER_OFFSETS_TOPIC)
        return len(topic.partitions) if topic is not None else 0

    async def store(self, group_id: str, records: Sequence[StoredRecord]) -> None:
        """Append to the group's partition and wait for what the topic's flush policy wants. Raises KafkaError."""
        waiting = self._append(group_id, records)
        if waiting is None:
            return
        self._in_flight[group_id] += 1
        try:
            await waiting
        except KafkaError as error:
            raise _for_members(error) from error
        finally:
            self._in_flight[group_id] -= 1
            if not self._in_flight[group_id]:
                del self._in_flight[group_id]

    def _append(self, group_id: str, records: Sequence[StoredRecord]) -> asyncio.Future[None] | None:
        """Append now; a future where the topic's policy wants an fsync first."""
        partition = self._partition(group_id)
        now_ms = self._broker.clock.now_ms()
        batch = build_batch([Record(value=value, key=key, timestamp=now_ms) for key, value in records])
        try:
            return self._broker.flusher.append(partition, memoryview(batch), now_ms)
        except KafkaError as error:
            raise _for_members(error) from error

    # -- effects

    def run(self, group: Group, effects: Iterable[Effect]) -> None:
        """Carry out what a group asks for, in order, and have it ticked when it wants to be."""
        self._carry_out(group, list(effects))
        self._timers.schedule(group.group_id, group.next_tick_ms)

    def _carry_out(self, group: Group, queue: list[Effect]) -> None:
        """Answers that follow a store wait for it."""
        for index, effect in enumerate(queue):
            if isinstance(effect, StoreGroup):
                try:
                    record = self.groups.group_record(group, self._broker.clock.now_ms())
                    waiting = self._append(group.group_id, [record])
                except Exception as error:  # whatever it was, those who wait must hear of it
                    self._storing_failed(group, queue[index + 1 :], error)
                    return
                if waiting is not None:
                    group.storing()
                    waiting.add_done_callback(partial(self._stored, group, queue[index + 1 :]))
                    return
            else:
                _answer(effect)

    def _stored(self, group: Group, rest: list[Effect], future: asyncio.Future[None]) -> None:
        error = future.exception()
        group.stored(self.now_ms())
        if error is not None:
            self._storing_failed(group, rest, error)
        else:
            self.run(group, rest)

    def _storing_failed(self, group: Group, rest: list[Effect], error: BaseException) -> None:
        self.failures += 1
        unexpected = None if isinstance(error, KafkaError) else error
        logger.error("group %s could not be stored: %s", group.group_id, error, exc_info=unexpected)
        for effect in rest:
            if isinstance(effect, JoinAnswer):
                _answer(JoinAnswer(effect.token, ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id=effect.member_id))
            elif isinstance(effect, SyncAnswer):
                _answer(SyncAnswer(effect.token, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        self.run(group, group.storing_failed(self.now_ms()))

    # -- time

    async def _repeat(self, seconds: float, job: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await job()
            except Exception:
                self.failures += 1
                logger.exception("%s failed and is tried again", job.__name__)

    async def tick_due(self) -> None:
        """Tick the groups whose time has come. Also looks at the clock, so that standing still is noticed."""
        turn = Turn()
        for group_id in self._timers.take_due(self.now_ms()):
            await turn.give_way()
            group = self.groups.find(group_id)
            if group is not None:
                self._tick(group, self.now_ms())

    def _tick(self, group: Group, now_ms: int) -> None:
        try:
            self.run(group, group.tick(now_ms))
        except Exception:
            self.failures += 1
            logger.exception("the clock of group %s failed", group.group_id)

    def loaded_groups(self) -> list[Group]:
        """The groups that are known as they are now."""
        groups = self.groups.all()
        if not self._loading:
            return groups
        count = self._partition_count()
        return [group for group in groups if partition_of(group.group_id, count) not in self._loading]

    async def expire_offsets(self) -> None:
        """Forget offsets whose time is over, and groups that have nothing left."""
        turn = Turn()
        for group in self.loaded_groups():
            await turn.give_way()
            if group.group_id in self._in_flight:
                continue  # it is in use; what is being written is not seen yet
            try:
                names = self.groups.expired_offsets(group, self._broker.clock.now_ms())
                await self.forget_offsets(group.group_id, names)
                if names:
                    logger.info("group %s: %d offsets have expired", group.group_id, len(names))
                if self.groups.is_expired(group):
                    await self.delete(group.group_id)
            except KafkaError as error:
                self.failures += 1
                logger.warning("group %s could not be looked through for expired offsets: %s", group.group_id, error)

    async def forget_offsets(self, group_id: str, names: Collection[TopicPartition]) -> None:
        """Delete committed offsets. Raises KafkaError."""
        if names:
            await self.store(group_id, [self.groups.offset_record(group_id, name, None) for name in names])
            self.groups.remove_offsets(group_id, names)

    async def delete(self, group_id: str) -> None:
        """Forget a group without members. Raises KafkaError.

        It is dead from the beginning, so that nobody joins or commits while the deletion is being stored.
        """
        self.check(group_id, may_be_empty=True)
        group = self.groups.check_deletable(group_id)
        records = self.groups.deletion_records(group_id)
        group.die()
        try:
            await self.store(group_id, records)
        except BaseException:
            group.revive()
            raise
        self.groups.remove(group_id)

    def _on_image(self, before: ClusterImage, now: ClusterImage) -> None:
        gone = {name for name, topic in before.topics.items() if name not in now.topics}
        gone |= {name for name, topic in now.topics.items() if _was_recreated(before.topics.get(name), topic)}
        if gone and self.groups.all():
            task = asyncio.create_task(self._forget_topics(gone))
            self._forgetting.add(task)
            task.add_done_callback(self._forgetting.discard)

    async def _forget_topics(self, topics: Collection[str]) -> None:
        """Topics are gone: so are the offsets that groups have in them."""
        turn = Turn()
        for group in self.groups.all():
            await turn.give_way()
            names = [name for name in self.groups.offsets_of(group.group_id) if name.topic in topics]
            try:
                await self.forget_offsets(group.group_id, names)
            except KafkaError as error:
                self.failures += 1
                logger.warning("group %s keeps offsets of deleted topics: %s", group.group_id, error)

    # -- loading

    async def _load(self, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            try:
                await self._load_partition(partition)
            except Exception:
                self.failures += 1
                # Its groups go on answering that they are being loaded: better no offset than a wrong one.
                logger.exception("%s cannot be loaded; its groups stay unavailable", partition.name)
        logger.info("%d groups were loaded", len(self.groups.all()))

    async def _load_partition(self, partition: Partition) -> None:
        group_ids = await self._replay(partition)
        turn = Turn()
        for group in filter(None, map(self.groups.find, group_ids)):
            await turn.give_way()
            group.loaded(self.now_ms())
        self._loading.discard(partition.name.partition)
        for group in filter(None, map(self.groups.find, group_ids)):
            await turn.give_way()
            self._timers.schedule(group.group_id, group.next_tick_ms)

    async def _replay(self, partition: Partition) -> set[str]:
        """Replay a partition: positions are found on the event loop, reading and parsing happen off it."""
        loop = asyncio.get_running_loop()
        log = partition.log
        offset, end_offset = log.log_start_offset, log.log_end_offset
        group_ids: set[str] = set()
        turn = Turn()
        while offset < end_offset:
            found = await self._broker.checks.read(log, offset, _LOAD_BYTES)
            if found is None:
                break
            offset, records = await loop.run_in_executor(self._broker.executor, _parse, found)
            for record in records:
                await turn.give_way()
                group_id = self.groups.replay(record.key, record.value) if record.key is not None else None
                if group_id is not None:
                    group_ids.add(group_id)
        return group_ids


def _answer(effect: Effect) -> None:
    assert isinstance(effect, JoinAnswer | SyncAnswer)
    if not effect.token.done():
        effect.token.set_result(effect)


def _parse(part: FileSlice) -> tuple[int, list[Record]]:
    """The offset after a range of a log, and the records in it. Raises InvalidBatchError rather than leave one out."""
    data = memoryview(part.read())
    position, offset = 0, -1
    records: list[Record] = []
    while position < len(data) or offset < 0:
        header = check_batch(data, position)
        records += read_records(data[position : position + header.size_bytes])
        position += header.size_bytes
        offset = header.end_offset
    return offset, records


def _for_members(error: KafkaError) -> KafkaError:
    """An error of the offsets topic in words that members of a group understand."""
    code = _ERRORS_OF_STORING.get(error.code, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return KafkaError(code, error.message)


def _was_recreated(before: TopicImage | None, now: TopicImage) -> bool:
    return before is not None and before.topic_id != now.topic_id


def partition_of(group_id: str, count: int) -> int:
    """The partition of a group, as Kafka computes it: Java's hash of the name, without its sign."""
    value = 0
    encoded = group_id.encode("utf-16-be")
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    signed = value - (1 << 32) if value & 0x80000000 else value
    return (0 if signed == -(1 << 31) else abs(signed)) % count
