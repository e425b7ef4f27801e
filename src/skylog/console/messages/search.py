"""Searches a range of a topic, from the newest messages to the oldest, and reports its progress.

It reads windows of all partitions at once, the newest first, so a search that is stopped early has covered the most
recent messages. It holds the matches of one window only, at most `limit`.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from skylog.client import Connection, Message, OffsetRange, PartitionReader
from skylog.console.messages.query import Predicate
from skylog.console.messages.view import Excerpt, excerpt
from skylog.model import TopicPartition

FIRST_WINDOW: Final = 4_000  # offsets of all partitions together
LAST_WINDOW: Final = 500_000
_GROWTH: Final = 4
PROGRESS_S: Final = 0.25
_PAUSE_S: Final = 0.001  # after each batch, so that other threads can run
SETTINGS: Final[dict[str, Any]] = {
    "fetch.message.max.bytes": 512 * 1024,
    "queued.max.messages.kbytes": 4096,
    "fetch.wait.max.ms": 50,
}


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """The progress of a search in offsets. `is_complete` if the whole range was searched and no match was left out."""

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
class SearchUpdate:
    """The progress of a search, and the matches since the last update, newest first."""

    progress: SearchProgress
    matches: list[Excerpt]


def search(
    connection: Connection, ranges: Mapping[TopicPartition, OffsetRange], predicate: Predicate, limit: int
) -> Iterator[SearchUpdate]:
    """Yield updates until the range is searched or there are `limit` matches. Close the generator to stop."""
    total = sum(map(len, ranges.values()))
    edges = {key: offsets.end_offset for key, offsets in ranges.items()}
    started = updated = time.monotonic()
    scanned = matches = 0
    is_cut = False
    window = FIRST_WINDOW
    while matches < limit and (slices := _next_slices(ranges, edges, window)):
        newest = _NewestMatches(limit - matches)
        read = 0
        for messages in _read(connection, slices):
            newest.add(filter(predicate, messages))
            read += len(messages)
            now = time.monotonic()
            if now - updated >= PROGRESS_S:
                updated = now
                yield SearchUpdate(SearchProgress(scanned + read, total, matches + len(newest), now - started), [])
            time.sleep(_PAUSE_S)
        scanned += sum(map(len, slices.values()))
        matches += len(newest)
        is_cut |= newest.is_cut
        edges |= {key: offsets.start_offset for key, offsets in slices.items()}
        yield SearchUpdate(SearchProgress(scanned, total, matches, time.monotonic() - started), newest.matches())
        window = min(window * _GROWTH, LAST_WINDOW)
    is_complete = scanned == total and not is_cut
    yield SearchUpdate(SearchProgress(scanned, total, matches, time.monotonic() - started, is_complete), [])


class _NewestMatches:
    """Keeps excerpts of the newest `count` messages. `is_cut` if there were more."""

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
    """Return the newest unread part of each partition, in proportion to the partition's unread offsets."""
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
