"""The offsets that open transactions have committed. They count when their transaction commits, and not before.

They are stored in the offsets topic as records of the transaction, and its marker in the same partition decides about
them. Of two commits for the same partition the one that is later in the log counts, as it does after a compaction. So
a commit outside of the transaction that comes after one inside of it replaces that, and of two transactions the later
record counts, whichever marker comes last. Every method is called in the order of the log, when something is appended
and when the log is replayed, so both lead to the same state.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from skylog.errors import MalformedRequestError
from skylog.groups.groups import CommittedOffset
from skylog.groups.stored_records import OffsetKey, UnknownRecordError, decode_key, decode_offset
from skylog.model import NO_PRODUCER_ID, TopicPartition

logger = logging.getLogger(__name__)

Offsets = dict[TopicPartition, CommittedOffset]


class _Pending(NamedTuple):
    """An offset and its place in the order of the log."""

    number: int
    committed: CommittedOffset


class PendingOffsets:
    """Offsets by producer id and group."""

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[str, dict[TopicPartition, _Pending]]] = {}
        self._producers: dict[str, set[int]] = {}  # by group
        self._added = 0

    def __len__(self) -> int:
        """The number of open transactions with offsets."""
        return len(self._by_producer)

    def add(self, producer_id: int, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Note offsets of an open transaction."""
        self._added += 1
        pending = self._by_producer.setdefault(producer_id, {}).setdefault(group_id, {})
        pending.update((name, _Pending(self._added, each)) for name, each in offsets.items())
        self._producers.setdefault(group_id, set()).add(producer_id)

    def groups_of(self, producer_id: int) -> list[str]:
        """Return the groups with offsets in the open transaction of a producer."""
        return list(self._by_producer.get(producer_id, ()))

    def end(self, producer_id: int, commits: bool) -> dict[str, Offsets]:
        """Remove the offsets of a transaction that has ended. Return those that count now, by group."""
        ended = self._by_producer.pop(producer_id, {})
        for group_id, offsets in ended.items():
            self._forget(producer_id, group_id)
            if commits:
                self._replace_earlier(group_id, offsets)
        if not commits:
            return {}
        return {group_id: {name: each.committed for name, each in found.items()} for group_id, found in ended.items()}

    def _replace_earlier(self, group_id: str, offsets: Mapping[TopicPartition, _Pending]) -> None:
        """Drop the offsets of open transactions that come before committed ones in the log."""
        for producer_id, pending in self._of_group(group_id):
            earlier = [name for name in pending.keys() & offsets.keys() if pending[name].number < offsets[name].number]
            self._remove(producer_id, group_id, earlier)

    def replace(self, group_id: str, names: Iterable[TopicPartition]) -> None:
        """Drop the offsets that a later record outside of their transaction replaces."""
        producers = self._of_group(group_id)
        if producers:
            replaced = set(names)
            for producer_id, pending in producers:
                self._remove(producer_id, group_id, pending.keys() & replaced)

    def remove_topics(self, topics: Collection[str]) -> dict[str, list[TopicPartition]]:
        """Drop the offsets in topics that were deleted. Return them by group."""
        removed: dict[str, list[TopicPartition]] = {}
        for groups in self._by_producer.values():
            for group_id, offsets in groups.items():
                names = [name for name in offsets if name.topic in topics]
                if names:
                    removed.setdefault(group_id, []).extend(names)
        for group_id, names in removed.items():
            self.replace(group_id, names)
        return removed

    def of_group(self, group_id: str) -> set[TopicPartition]:
        """Return the partitions whose offset an open transaction may change."""
        return {name for _, pending in self._of_group(group_id) for name in pending}

    def _of_group(self, group_id: str) -> list[tuple[int, dict[TopicPartition, _Pending]]]:
        """Return the producers with offsets of a group, and those."""
        return [(each, self._by_producer[each][group_id]) for each in self._producers.get(group_id, ())]

    # -- loading

    def replay(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        """Apply a record of a transaction, or one outside of any if the producer is NO_PRODUCER_ID.

        An unreadable one is skipped; `Groups.replay` logs those outside of transactions.
        """
        try:
            decoded = decode_key(key)
            if not isinstance(decoded, OffsetKey):
                return
            name = TopicPartition(decoded.topic, decoded.partition)
            if producer_id == NO_PRODUCER_ID:
                self.replace(decoded.group, [name])
            elif value is not None:
                stored = decode_offset(value)
                committed = CommittedOffset(
                    stored.offset, stored.leader_epoch, stored.metadata, stored.commit_timestamp
                )
                self.add(producer_id, decoded.group, {name: committed})
        except (UnknownRecordError, MalformedRequestError, struct.error) as error:
            if producer_id != NO_PRODUCER_ID:
                logger.warning("skipping an unreadable record of a transaction: %s", error)

    def _remove(self, producer_id: int, group_id: str, names: Collection[TopicPartition]) -> None:
        if not names:
            return
        groups = self._by_producer[producer_id]
        for name in names:
            del groups[group_id][name]
        if not groups[group_id]:
            del groups[group_id]
            self._forget(producer_id, group_id)
        if not groups:
            del self._by_producer[producer_id]

    def _forget(self, producer_id: int, group_id: str) -> None:
        """Note that a producer has no offsets of a group any more."""
        producers = self._producers[group_id]
        producers.discard(producer_id)
        if not producers:
            del self._producers[group_id]
