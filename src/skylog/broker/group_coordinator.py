"""The coordinator of consumer groups: it finds the shard of a group, and drives the shards' timers.

Groups and offsets are stored in the internal topic `__consumer_offsets`. This broker coordinates the groups of the
partitions that it leads, each partition in a shard of its own (see `group_shard` and `state_topic`).

A group schedules its next tick; a group in which nothing can expire costs nothing. Due work of a group runs before any
request about it.

Sessions and rebalances use the monotonic clock, so a jump of the wall clock expires no member. Time during which the
process was stopped does not count, because requests that members sent meanwhile have not been read yet.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from skylog.broker.group_shard import GroupShard
from skylog.broker.leadership import Leadership
from skylog.broker.periodic_jobs import PeriodicJobs
from skylog.broker.state_topic import StateTopic
from skylog.broker.time_slice import TimeSlice
from skylog.cluster import ClusterImage, TopicImage
from skylog.errors import ErrorCode, KafkaError
from skylog.groups import GroupConfig
from skylog.model import CONSUMER_OFFSETS_TOPIC, TopicPartition

if TYPE_CHECKING:
    from skylog.broker.broker import Broker

TICK_SECONDS: Final = 0.1
STALL_SECONDS: Final = 1.0  # a longer time between two readings of the clock means that the process was stopped


class GroupCoordinator:
    """The groups of this broker. Use it on the event loop only. Background failures are counted in `failures`.

    `racks` has the racks of brokers by id. Those that are away keep theirs: nothing moves for a restart.
    """

    def __init__(self, broker: Broker, config: GroupConfig) -> None:
        self._broker = broker
        self._config = config
        self.racks: dict[int, str] = {}
        self._topic = StateTopic(CONSUMER_OFFSETS_TOPIC, broker, self._new_shard)
        self._last_reading = 0.0
        self._stalled = 0.0
        self._jobs = PeriodicJobs()
        self._failures = 0

    def _new_shard(self, leadership: Leadership) -> GroupShard:
        return GroupShard(self._broker, self._config, leadership, self._now_ms, self._failed)

    @property
    def failures(self) -> int:
        return self._failures + self._jobs.failures + self._topic.failures

    def _failed(self) -> None:
        self._failures += 1

    def start(self) -> None:
        self._last_reading = asyncio.get_running_loop().time()
        self._note_racks(self._broker.metadata.image)
        self._topic.start()
        self._broker.metadata.listen(self._on_image)
        self._jobs.start(TICK_SECONDS, self.tick_due)
        self._jobs.start(self._config.offsets_retention_check_interval_ms / 1000, self.expire_offsets)

    async def stop(self) -> None:
        await self._jobs.stop()
        await self._topic.stop()
        for shard in self.shards():
            await shard.settled()

    def _now_ms(self) -> int:
        """Return the time for sessions and rebalances, which excludes stalls of the event loop."""
        reading = asyncio.get_running_loop().time()
        if reading - self._last_reading > STALL_SECONDS:
            self._stalled += reading - self._last_reading
        self._last_reading = reading
        return int((self._broker.clock.monotonic() - self._stalled) * 1000)

    # -- finding groups

    async def ensure_topic(self) -> None:
        """Create the offsets topic unless it exists. Raises KafkaError."""
        await self._topic.ensure_exists()

    def find(self, group_id: str) -> int:
        """Return the id of the broker that coordinates a group, NO_LEADER if none does."""
        return self._topic.coordinator_of(group_id)

    def shard(self, group_id: str, *, may_be_empty: bool = False) -> GroupShard:
        """Return the shard of a group. Raises KafkaError unless this broker serves the group now.

        An empty group id is allowed for committed offsets, but not for members.
        """
        if not group_id and not may_be_empty:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        return self._topic.shard(group_id)

    def shards(self) -> list[GroupShard]:
        """Return the shards that this broker serves."""
        return self._topic.served()

    def partition_of(self, group_id: str) -> TopicPartition:
        """Return the partition of the offsets topic that a group is stored in."""
        return self._topic.partition_for(group_id)

    async def transaction_ended(self, index: int, producer_id: int, commits: bool) -> None:
        """Called when a partition of the offsets topic has got the marker of a transaction."""
        shard = self._topic.shard_of(index)
        if shard is not None:
            await shard.end_transaction(producer_id, commits)

    @property
    def is_loading(self) -> bool:
        """Whether this broker coordinates groups that it does not serve yet."""
        return self._topic.is_loading

    # -- background

    async def tick_due(self) -> None:
        """Tick the groups that are due. Reading the clock here also detects stalls."""
        now_ms = self._now_ms()
        time_slice = TimeSlice()
        for shard in self.shards():
            await shard.tick_due(now_ms, time_slice)

    async def expire_offsets(self) -> None:
        """Delete expired offsets, and groups without members and offsets."""
        time_slice = TimeSlice()
        for shard in self.shards():
            await shard.expire_offsets(time_slice)

    def _note_racks(self, image: ClusterImage) -> None:
        self.racks.update((node_id, each.rack) for node_id, each in image.brokers.items() if each.rack)

    def _on_image(self, before: ClusterImage, now: ClusterImage) -> None:
        self._note_racks(now)
        gone = {name for name, topic in before.topics.items() if name not in now.topics}
        gone |= {name for name, topic in now.topics.items() if _was_recreated(before.topics.get(name), topic)}
        if gone:
            for shard in self._topic.all_shards():
                shard.remove_topics(gone)


def _was_recreated(before: TopicImage | None, now: TopicImage) -> bool:
    return before is not None and before.topic_id != now.topic_id
