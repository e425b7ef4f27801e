"""Reads a page of messages anywhere in a topic. Partitions are merged by timestamp, each in its own order.

Reading starts at a cursor, with one offset per partition, and goes backward or forward. It reads a short slice of each
partition, and further slices only of partitions whose messages all belong on the page. So a page costs the same at any
offset, regardless of the size of the topic and the number of partitions. Offsets may be empty (compaction), so slices
grow until there are enough messages. Time and bytes are limited. A page that reaches a limit is marked as not whole.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from skylog.client import Connection, Message, OffsetRange, PartitionReader
from skylog.model import TopicPartition

Cursor = dict[TopicPartition, int]

READ_S: Final = 3.0
READ_BYTES: Final = 32 * 1024 * 1024
# The length of the first slices, and the share of the budget that reading them may use. The shorter lengths are for
# large messages: backward, a slice that is not read to its end is useless.
_TRIALS: Final = ((16, 0.25), (4, 0.5), (1, 1.0))
_GROWTH: Final = 4
SETTINGS: Final[dict[str, Any]] = {
    "fetch.message.max.bytes": 128 * 1024,
    "queued.max.messages.kbytes": 1024,
    "fetch.wait.max.ms": 50,
}


@dataclass(frozen=True, slots=True)
class MessagePage:
    """Messages in reading order, starting at the cursor. `outer` is the cursor of the next page."""

    messages: list[Message]
    outer: Cursor
    is_whole: bool


def read_page(
    connection: Connection, held: Mapping[TopicPartition, OffsetRange], cursor: Cursor, count: int, *, backward: bool
) -> MessagePage:
    """Read `count` messages before `cursor` (newest first) or from it on (oldest first)."""
    budget = _Budget()
    for reach, share in _TRIALS:
        builder = _PageBuilder(held, cursor, count, backward, reach)
        budget.allow(share)
        _read_round(connection, builder, budget)
        if builder.has_moved or not budget.is_spent:
            break
    budget.allow(1)
    while not budget.is_spent and _read_round(connection, builder, budget):
        pass
    return builder.page(is_whole=not budget.is_spent)


def _read_round(connection: Connection, builder: _PageBuilder, budget: _Budget) -> bool:
    """Read the next slices. False if there is nothing more to read or the budget is spent."""
    slices = builder.next_slices(budget)
    if not slices:
        return False
    fresh = _read(connection, slices, budget)
    if budget.is_spent:
        builder.add_partial(slices, fresh)
    else:
        builder.add(slices, fresh)
    return not budget.is_spent


class _Budget:
    """The time and bytes that a page may use, and the share that is allowed so far."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._spent_bytes = 0
        self._messages = 0
        self.allow(1)

    def allow(self, share: float) -> None:
        """Set the share of the whole budget that may be used in total from now on."""
        self._deadline = self._started + READ_S * (1 + share) / 2  # connecting takes time even for a small share
        self._bytes = int(READ_BYTES * share)
        self._check()

    def spend(self, messages: Sequence[Message]) -> None:
        self._messages += len(messages)
        self._spent_bytes += sum(len(message.raw) for message in messages)
        self._check()

    def _check(self) -> None:
        self.is_spent = self._spent_bytes > self._bytes or time.monotonic() > self._deadline

    def affordable(self) -> int:
        """Return the number of messages that fit into the rest of the budget, at the average size so far."""
        if not self._messages:
            return self._bytes
        return int((self._bytes - self._spent_bytes) / max(self._spent_bytes / self._messages, 1))


def _read(
    connection: Connection, slices: Mapping[TopicPartition, OffsetRange], budget: _Budget
) -> dict[TopicPartition, list[Message]]:
    """Read the messages of some slices. Uses a new reader, because a reader that seeks may pause for a second."""
    fresh: dict[TopicPartition, list[Message]] = {key: [] for key in slices}
    starts = {key: offsets.start_offset for key, offsets in slices.items()}
    reader = PartitionReader(connection, starts, settings=SETTINGS)
    try:
        for messages in reader.read_to_end(slices):
            for message in messages:
                fresh[message.topic_partition].append(message)
            budget.spend(messages)
            if budget.is_spent:
                break
    finally:
        reader.close()
    return fresh


class _PageBuilder:
    """Collects the messages of each partition, starting at the cursor, and decides what to read next."""

    def __init__(
        self, held: Mapping[TopicPartition, OffsetRange], cursor: Cursor, count: int, backward: bool, reach: int
    ) -> None:
        self._held = held
        self._cursor = cursor
        self._edges = dict(cursor)
        self._count = count
        self._backward = backward
        self._messages: dict[TopicPartition, list[Message]] = {key: [] for key in held}
        self._reach = dict.fromkeys(held, min(-(-2 * count // max(len(held), 1)), reach))
        self._read_counts = dict.fromkeys(held, 0)

    @property
    def has_moved(self) -> bool:
        return self._edges != self._cursor

    def next_slices(self, budget: _Budget) -> dict[TopicPartition, OffsetRange]:
        """Return the slices to read next. Empty if the page is full or the budget is too small for more."""
        incomplete = self._incomplete()
        if not incomplete:
            return {}
        affordable = max(budget.affordable() // len(incomplete), 0 if self.has_moved else 1)
        if not affordable:
            budget.is_spent = True
            return {}
        slices = {}
        for key in incomplete:
            held, edge, reach = self._held[key], self._edges[key], self._reach_of(key, affordable)
            self._reach[key] *= _GROWTH
            if self._backward:
                slices[key] = OffsetRange(max(held.start_offset, edge - reach), edge)
            else:
                slices[key] = OffsetRange(edge, min(held.end_offset, edge + reach))
        return slices

    def _reach_of(self, key: TopicPartition, affordable: int) -> int:
        """Return the number of offsets to read next: as many as are needed and affordable at the density so far."""
        needed = min(self._count - len(self._messages[key]), affordable)
        offsets, messages = abs(self._edges[key] - self._cursor[key]), self._read_counts[key]
        if messages < offsets:
            needed = self._reach[key] if not messages else max(needed * offsets // messages, _TRIALS[0][0])
        return min(self._reach[key], needed)

    def _incomplete(self) -> list[TopicPartition]:
        """Return the partitions that must be read further to decide which messages belong on the page."""
        chosen = self._choose()
        taken = _counts(chosen)
        incomplete = []
        for key, held in self._held.items():
            known = len(self._messages[key])
            has_more = self._edges[key] > held.start_offset if self._backward else self._edges[key] < held.end_offset
            is_enough = known == self._count or (len(chosen) == self._count and taken.get(key, 0) < known)
            if has_more and not is_enough:
                incomplete.append(key)
        return incomplete

    def add(self, slices: Mapping[TopicPartition, OffsetRange], fresh: Mapping[TopicPartition, list[Message]]) -> None:
        for key, piece in slices.items():
            self._messages[key] += reversed(fresh[key]) if self._backward else fresh[key]
            del self._messages[key][self._count :]
            self._read_counts[key] += len(fresh[key])
            self._edges[key] = piece.start_offset if self._backward else piece.end_offset

    def add_partial(
        self, slices: Mapping[TopicPartition, OffsetRange], fresh: Mapping[TopicPartition, list[Message]]
    ) -> None:
        """Add interrupted slices, if they join the messages so far: backward, only slices read to their end."""
        joined = {}
        for key, piece in slices.items():
            next_offset = fresh[key][-1].offset + 1 if fresh[key] else piece.start_offset
            if next_offset == piece.end_offset or not self._backward:
                joined[key] = OffsetRange(piece.start_offset, next_offset)
        self.add(joined, fresh)

    def page(self, *, is_whole: bool) -> MessagePage:
        chosen = self._choose()
        taken = _counts(chosen)
        outer = {}
        for key, messages in self._messages.items():
            last = messages[taken[key] - 1].offset if taken.get(key) else None
            if last is None:
                outer[key] = self._cursor[key] if messages else self._edges[key]
            else:
                outer[key] = last if self._backward else last + 1
        return MessagePage(chosen, outer, is_whole)

    def _choose(self) -> list[Message]:
        sign = -1 if self._backward else 1
        merged = heapq.merge(*self._messages.values(), key=lambda message: sign * message.timestamp_ms)
        return list(islice(merged, self._count))


def _counts(messages: list[Message]) -> dict[TopicPartition, int]:
    counts: dict[TopicPartition, int] = {}
    for message in messages:
        counts[message.topic_partition] = counts.get(message.topic_partition, 0) + 1
    return counts


def read_one(connection: Connection, key: TopicPartition, held: OffsetRange, offset: int) -> Message | None:
    """Read the message at an offset, or the next one if that offset is empty."""
    found = read_page(connection, {key: held}, {key: offset}, 1, backward=False)
    return found.messages[0] if found.messages else None
