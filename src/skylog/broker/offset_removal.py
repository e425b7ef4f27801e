"""Removes committed offsets of a shard's groups: those that expire, are deleted, or belong to a deleted topic.

Tombstones go into batches of limited size, so a group may have any number of offsets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from skylog.broker.group_log import BATCH_BYTES, GroupLog
from skylog.broker.leadership import Leadership
from skylog.broker.time_slice import TimeSlice
from skylog.errors import KafkaError
from skylog.groups import AnyGroup, Groups, PendingOffsets
from skylog.model import MAX_TOPIC_NAME_LENGTH, TopicPartition

if TYPE_CHECKING:
    from skylog.broker.broker import Broker

logger = logging.getLogger(__name__)

_KEY_BYTES: Final = 32  # of the record of an offset, besides the names of its group and topic


class OffsetRemoval:
    """Part of a `GroupShard`, which owns the groups. `failed` is called for each failure in the background."""

    def __init__(
        self,
        broker: Broker,
        groups: Groups,
        pending: PendingOffsets,
        log: GroupLog,
        leadership: Leadership,
        failed: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._groups = groups
        self._pending = pending
        self._log = log
        self._leadership = leadership
        self._failed = failed
        self.under_way: set[asyncio.Task[None]] = set()

    async def remove(self, group_id: str, names: Sequence[TopicPartition]) -> None:
        """Delete offsets of a group. Raises KafkaError. Then those whose tombstones are in the log are deleted, too."""
        for part in _parts(group_id, names):
            await self._remove_part(group_id, part)

    async def _remove_part(self, group_id: str, names: Sequence[TopicPartition]) -> None:
        is_appended = False

        def appended() -> None:
            nonlocal is_appended
            is_appended = True
            self._pending.replace(group_id, names)

        records = [self._groups.offset_record(group_id, name, None) for name in names]
        try:
            await self._log.store(group_id, records, appended=appended)
        finally:
            # A tombstone that is late is in the log all the same, and the next leader replays it.
            if is_appended and not self._leadership.is_over:
                self._groups.remove_offsets(group_id, names)

    # -- expiry

    async def expire(self, group: AnyGroup, time_slice: TimeSlice) -> bool:
        """Delete the expired offsets of a group. Return whether nothing is left of it. Raises KafkaError."""
        group_id, count = group.group_id, 0
        for part in _parts(group_id, tuple(self._groups.offsets_of(group_id))):
            await time_slice.yield_if_over()
            if self._is_in_use(group):
                break
            names = self._expired_offsets(group, part)
            await self.remove(group_id, names)
            count += len(names)
        if count:
            logger.info("group %s: %d offsets have expired", group_id, count)
        return not self._is_in_use(group) and self._groups.is_expired(group) and not self._pending.of_group(group_id)

    def _is_in_use(self, group: AnyGroup) -> bool:
        """Whether the group has changed its protocol meanwhile, or has records in flight, which are not applied yet."""
        return self._groups.find(group.group_id) is not group or self._log.has_in_flight(group.group_id)

    def _expired_offsets(self, group: AnyGroup, names: Collection[TopicPartition]) -> list[TopicPartition]:
        """Return those of the partitions whose offsets are to be deleted."""
        now_ms = self._broker.clock.now_ms()
        orphaned = self._groups.orphaned_offsets(group.group_id, self._broker.metadata.image.topics, now_ms, names)
        expired = dict.fromkeys(self._groups.expired_offsets(group, now_ms, names) + orphaned)
        pending = self._pending.of_group(group.group_id) if expired else ()
        return [name for name in expired if name not in pending]

    # -- deleted topics

    def remove_topics(self, topics: Collection[str]) -> None:
        """Remove the offsets in topics that were deleted: from memory now, from the log soon."""
        self.store(self._drop_topics(topics))

    def _drop_topics(self, topics: Collection[str]) -> dict[str, list[TopicPartition]]:
        """Remove the offsets in deleted topics from memory, also those of open transactions. Return them by group."""
        removed = self._groups.remove_topics(topics)
        for group_id, names in self._pending.remove_topics(topics).items():
            removed[group_id] = list(dict.fromkeys([*removed.get(group_id, ()), *names]))
        return removed

    def store(self, removed: Mapping[str, Sequence[TopicPartition]]) -> None:
        """Delete offsets of deleted topics from the log. They are gone from memory already."""
        if removed:
            task = asyncio.create_task(self._append_tombstones(removed))
            self.under_way.add(task)
            task.add_done_callback(self.under_way.discard)

    async def _append_tombstones(self, removed: Mapping[str, Sequence[TopicPartition]]) -> None:
        time_slice = TimeSlice()
        for group_id, names in removed.items():
            for part in _parts(group_id, names):
                await time_slice.yield_if_over()
                await self._log.wait_for_earlier(group_id)
                try:
                    await self._append_tombstones_of(group_id, part)
                except KafkaError as error:
                    if self._leadership.is_over:
                        return
                    self._failed()
                    logger.warning("cannot delete the offsets of group %s in deleted topics: %s", group_id, error)

    async def _append_tombstones_of(self, group_id: str, names: Collection[TopicPartition]) -> None:
        """Delete offsets from the log, except those that are committed again, in a new topic of the same name."""
        known, pending = self._groups.offsets_of(group_id), self._pending.of_group(group_id)
        gone = [name for name in names if name not in known and name not in pending]
        if gone:
            await self._log.store(group_id, [self._groups.offset_record(group_id, name, None) for name in gone])

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        await asyncio.gather(*self.under_way, return_exceptions=True)


def names_per_batch(group_id: str) -> int:
    """Return how many tombstones of offsets fit into a batch."""
    return max(1, BATCH_BYTES // (len(group_id.encode()) + MAX_TOPIC_NAME_LENGTH + _KEY_BYTES))


def _parts(group_id: str, names: Sequence[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
    """Split partitions into those whose tombstones fit into a batch."""
    count = names_per_batch(group_id)
    return (names[start : start + count] for start in range(0, len(names), count))
