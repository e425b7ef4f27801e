"""A page of messages from anywhere in a topic, merged over its partitions by time, each partition in its order.

Reads outwards from a cursor, one offset per partition: backward for what lies before it, forward for what lies after.
Of each partition it reads a short slice, and further slices only of those whose messages all belong on the page: so a
page costs the same at any offset, however large the topic and however many its partitions. An offset may hold no
message (compaction), so slices grow until enough is found. Time and bytes are limited; a page that hits a limit says
that it is not whole.
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
# How far to reach at first, and which share of the budget may be spent by then. The smaller reaches are for messages
# that are too large to read so many: backward, a slice that is not read to its end is of no use.
_TRIALS: Final = ((16, 0.25), (4, 0.5), (1, 1.0))
_GROWTH: Final = 4
SETTINGS: Final[dict[str, Any]] = {
    "fetch.message.max.bytes": 128 * 1024,
    "queued.max.messages.kbytes": 1024,
    "fetch.wait.max.ms": 50,
}


@dataclass(frozen=True, slots=True)
class Found:
    """Messages in the order in which they were come upon, from the cursor outwards; where to go on from there."""

    messages: list[Message]
    outer: Cursor
    is_whole: bool


def read_page(
    connection: Connection, held: Mapping[TopicPartition, OffsetRange], cursor: Cursor, count: int, *, backward: bool
) -> Found:
    """The `count` messages next to `cursor`: before it (newest first) or from it on (oldest first)."""
    budget = _Budget()
    for reach, share in _TRIALS:
        outwards = _Outwards(held, cursor, count, backward, reach)
        budget.allow(share)
        _read_round(connection, outwards, budget)
        if outwards.has_moved or not budget.is_spent:
            break
    budget.allow(1)
    while not budget.is_spent and _read_round(connection, outwards, budget):
        pass
    return outwards.found(is_whole=not budget.is_spent)


def _read_round(connection: Connection, outwards: _Outwards, budget: _Budget) -> bool:
    """Read the next slices. False if there is nothing more to read, or nothing to pay it with."""
    slices = outwards.next_slices(budget)
    if not slices:
        return False
    fresh = _read(connection, slices, budget)
    if budget.is_spent:
        outwards.take_part(slices, fresh)
    else:
        outwards.take(slices, fresh)
    return not budget.is_spent


class _Budget:
    """What one page may cost, and how much of that for now."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._spent_bytes = 0
        self._messages = 0
        self.allow(1)

    def allow(self, share: float) -> None:
        """From now on no more may have been spent than this share of the whole."""
        self._deadline = self._started + READ_S * (1 + share) / 2  # to connect takes its time for the least as well
        self._bytes = int(READ_BYTES * share)
        self._look()

    def spend(self, messages: Sequence[Message]) -> None:
        self._messages += len(messages)
        self._spent_bytes += sum(len(message.raw) for message in messages)
        self._look()

    def _look(self) -> None:
        self.is_spent = self._spent_bytes > self._bytes or time.monotonic() > self._deadline

    def affordable(self) -> int:
        """How many more messages of the size of those before it will pay for."""
        if not self._messages:
            return self._bytes
        return int((self._bytes - self._spent_bytes) / max(self._spent_bytes / self._messages, 1))


def _read(
    connection: Connection, slices: Mapping[TopicPartition, OffsetRange], budget: _Budget
) -> dict[TopicPartition, list[Message]]:
    """The messages of some slices. By a reader of its own: one that is given other offsets may pause for a second."""
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


class _Outwards:
    """What has been read of each partition, from the cursor outwards, and what must be read next."""

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
        """What to read next; nothing once the page is full, or if the budget is too small for any more."""
        needy = self._needy()
        if not needy:
            return {}
        affordable = max(budget.affordable() // len(needy), 0 if self.has_moved else 1)
        if not affordable:
            budget.is_spent = True
            return {}
        slices = {}
        for key in needy:
            held, edge, reach = self._held[key], self._edges[key], self._reach_of(key, affordable)
            self._reach[key] *= _GROWTH
            if self._backward:
                slices[key] = OffsetRange(max(held.start_offset, edge - reach), edge)
            else:
                slices[key] = OffsetRange(edge, min(held.end_offset, edge + reach))
        return slices

    def _reach_of(self, key: TopicPartition, affordable: int) -> int:
        """How many offsets to read next: no more than is needed and can be paid for, if they are as full as before."""
        needed = min(self._count - len(self._messages[key]), affordable)
        offsets, messages = abs(self._edges[key] - self._cursor[key]), self._read_counts[key]
        if messages < offsets:
            needed = self._reach[key] if not messages else max(needed * offsets // messages, _TRIALS[0][0])
        return min(self._reach[key], needed)

    def _needy(self) -> list[TopicPartition]:
        """The partitions of which more must be known before it is clear what belongs on the page."""
        chosen = self._choose()
        taken = _counts(chosen)
        needy = []
        for key, held in self._held.items():
            known = len(self._messages[key])
            has_more = self._edges[key] > held.start_offset if self._backward else self._edges[key] < held.end_offset
            is_enough = known == self._count or (len(chosen) == self._count and taken.get(key, 0) < known)
            if has_more and not is_enough:
                needy.append(key)
        return needy

    def take(self, slices: Mapping[TopicPartition, OffsetRange], fresh: Mapping[TopicPartition, list[Message]]) -> None:
        for key, piece in slices.items():
            self._messages[key] += reversed(fresh[key]) if self._backward else fresh[key]
            del self._messages[key][self._count :]
            self._read_counts[key] += len(fresh[key])
            self._edges[key] = piece.start_offset if self._backward else piece.end_offset

    def take_part(
        self, slices: Mapping[TopicPartition, OffsetRange], fresh: Mapping[TopicPartition, list[Message]]
    ) -> None:
        """Of slices whose reading was broken off, what joins to what is there: backward, only those read to the end."""
        joined = {}
        for key, piece in slices.items():
            next_offset = fresh[key][-1].offset + 1 if fresh[key] else piece.start_offset
            if next_offset == piece.end_offset or not self._backward:
                joined[key] = OffsetRange(piece.start_offset, next_offset)
        self.take(joined, fresh)

    def found(self, *, is_whole: bool) -> Found:
        chosen = self._choose()
        taken = _counts(chosen)
        outer = {}
        for key, messages in self._messages.items():
            last = messages[taken[key] - 1].offset if taken.get(key) else None
            if last is None:
                outer[key] = self._cursor[key] if messages else self._edges[key]
            else:
                outer[key] = last if self._backward else last + 1
        return Found(chosen, outer, is_whole)

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
    """The message at an offset, or the next one after it where that offset holds none."""
    found = read_page(connection, {key: held}, {key: offset}, 1, backward=False)
    return found.messages[0] if found.messages else None
