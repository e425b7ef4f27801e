"""Lets readers skip runs of batches that compaction has emptied.

Compaction keeps an empty batch if it is the last one of an idempotent producer, so a topic with many producers may have
a hundred thousand of them in a row. A short run is skipped immediately. An `EmptyRunCheck` measures a long one off the
event loop, and the result is remembered.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable
from struct import Struct
from typing import Final, NamedTuple

from skylog.records import HEADER_BYTES, LOG_OVERHEAD_BYTES
from skylog.storage.files import FileSlice

PASSED_AT_ONCE: Final = 500
RUN_BYTES: Final = 4 * 1024 * 1024  # the most that one check scans
_CHUNK_BYTES: Final = 64 * 1024
_OFFSET_LENGTH_DELTA_COUNT = Struct(">qi11xi30xi")


class Passed(NamedTuple):
    """The position and offset after the skipped batches, and whether they are the whole run."""

    position: int
    next_offset: int
    is_whole: bool


def pass_over(batches: FileSlice, log_end_offset: int, limit: int | None = None) -> Passed | None:
    """Skip empty batches, at most `limit`. Return None if the first batch must not be skipped.

    The last batch of the log is never skipped: without it a reader would not know that it has reached the end.
    """
    position, end = batches.position, batches.position + batches.length
    next_offset, count = -1, 0
    chunk, chunk_start = b"", position
    while position < end and count != limit:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk, chunk_start, at = batches.file.read(position, _CHUNK_BYTES), position, 0
        base_offset, length, last_offset_delta, record_count = _OFFSET_LENGTH_DELTA_COUNT.unpack_from(chunk, at)
        end_offset = base_offset + last_offset_delta + 1
        if record_count or end_offset >= log_end_offset:
            return Passed(position, next_offset, True) if count else None
        position, next_offset, count = position + length + LOG_OVERHEAD_BYTES, end_offset, count + 1
    return Passed(position, next_offset, position >= end)


class EmptyRuns:
    """The known long runs of a segment. Used from the thread that appends."""

    __slots__ = ("_ends", "_next_offsets", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._next_offsets: list[int] = []

    def next_offset(self, position: int) -> int | None:
        """Return the offset after the run that contains `position`; None if there is none."""
        index = bisect_right(self._starts, position) - 1
        return self._next_offsets[index] if index >= 0 and position < self._ends[index] else None

    def add(self, start: int, end: int, next_offset: int) -> None:
        """Add a run and merge it with the runs that it overlaps or touches."""
        first, last = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if first < last:
            start = min(start, self._starts[first])
            end, next_offset = max((end, next_offset), (self._ends[last - 1], self._next_offsets[last - 1]))
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]
        self._next_offsets[first:last] = [next_offset]


class EmptyRunCheck:
    """Measures the run of empty batches at the start of `batches`, which are sound. Call `run` in any thread."""

    def __init__(self, runs: EmptyRuns, batches: FileSlice, log_end_offset: int) -> None:
        self._runs = runs
        self._batches = batches
        self._log_end_offset = log_end_offset
        self._passed: Passed | None = None

    @property
    def key(self) -> Hashable:
        return self._runs, self._batches.position

    def run(self) -> None:
        """Raises OSError."""
        self._passed = pass_over(self._batches, self._log_end_offset)

    def finish(self) -> None:
        if self._passed is not None:
            self._runs.add(self._batches.position, self._passed.position, self._passed.next_offset)
