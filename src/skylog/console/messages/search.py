"""Searches a range of a topic from its newest messages to its oldest, and tells how far it is.

Every partition is read in windows, the newest first, all partitions of a round at once: a search that is stopped early
has seen what is likely wanted. Holds no more than the matches of one round, at most as many as are asked for.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from skylog.client import Connection, Message, OffsetRange, PartitionReader
from skylog.console.messages.match import Test
from skylog.console.messages.view import Excerpt, excerpt
from skylog.model import TopicPartition

FIRST_WINDOW: Final = 4_000  # offsets of all partitions together
LAST_WINDOW: Final = 500_000
_GROWTH: Final = 4
TELL_S: Final = 0.25
_REST_S: Final = 0.001  # after each part, so that pages and other searches get their turn
SETTINGS: Final[dict[str, Any]] = {
    "fetch.message.max.bytes": 512 * 1024,
    "queued.max.messages.kbytes": 4096,
    "fetch.wait.max.ms": 50,
}


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search is, in offsets. `is_complete` once everything was looked at and all that was found is told."""

    scanned: int
    total: int
    matches: int
    elapsed_s: float
    is_complete: bool = False

    @property
    def document(self) -> dict[str, Any]:
        speed = self.scanned / self.elapsed_s if self.elapsed_s else 0.0
        return asdict(self) | {"elapsed_s": round(self.elapsed_s, 3), "messages_per_s": round(speed)}


@dataclass(frozen=True, slots=True)
class Step:
    """News of a search: where it is, and what it has found since the last step, newest first."""

    progress: Progress
    matches: list[Excerpt]


def search(
    connection: Connection, ranges: Mapping[TopicPartition, OffsetRange], test: Test, limit: int
) -> Iterator[Step]:
    """Steps until everything was read or `limit` messages were found. A generator: closing it ends the search."""
    total = sum(map(len, ranges.values()))
    edges = {key: offsets.end_offset for key, offsets in ranges.items()}
    started = told = time.monotonic()
    scanned = matches = 0
    is_cut = False
    window = FIRST_WINDOW
    while matches < limit and (slices := _next_slices(ranges, edges, window)):
        newest = _Newest(limit - matches)
        read = 0
        for messages in _read(connection, slices):
            newest.add(filter(test, messages))
            read += len(messages)
            now = time.monotonic()
            if now - told >= TELL_S:
                told = now
                yield Step(Progress(scanned + read, total, matches + len(newest), now - started), [])
            time.sleep(_REST_S)
        scanned += sum(map(len, slices.values()))
        matches += len(newest)
        is_cut |= newest.is_cut
        edges |= {key: offsets.start_offset for key, offsets in slices.items()}
        yield Step(Progress(scanned, total, matches, time.monotonic() - started), newest.matches())
        window = min(window * _GROWTH, LAST_WINDOW)
    is_complete = scanned == total and not is_cut
    yield Step(Progress(scanned, total, matches, time.monotonic() - started, is_complete), [])


class _Newest:
    """The newest of the messages that it is given, so many at most, and of each what is shown.

    `is_cut` if there were more.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._heap: list[tuple[int, int, int, Excerpt]] = []
        self.is_cut = False

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, messages: Iterable[Message]) -> None:
        for message in messages:
            item = (message.timestamp_ms, message.offset, message.partition, excerpt(message))
            if len(self._heap) < self._count:
                heapq.heappush(self._heap, item)
            else:
                heapq.heappushpop(self._heap, item)
                self.is_cut = True

    def matches(self) -> list[Excerpt]:
        return [found for *_, found in sorted(self._heap, key=lambda item: item[:3], reverse=True)]


def _next_slices(
    ranges: Mapping[TopicPartition, OffsetRange], edges: Mapping[TopicPartition, int], window: int
) -> dict[TopicPartition, OffsetRange]:
    """Of each partition that is not read yet, the newest part that is left, in proportion to what is left of it."""
    left = {key: edges[key] - offsets.start_offset for key, offsets in ranges.items()}
    whole = sum(left.values())
    slices = {}
    for key, count in left.items():
        if count > 0:
            share = min(count, -(-window * count // whole))
            slices[key] = OffsetRange(edges[key] - share, edges[key])
    return slices


def _read(connection: Connection, slices: Mapping[TopicPartition, OffsetRange]) -> Iterator[list[Message]]:
    starts = {key: offsets.start_offset for key, offsets in slices.items()}
    reader = PartitionReader(connection, starts, settings=SETTINGS)
    try:
        yield from reader.read_to_end(slices)
    finally:
        reader.close()
