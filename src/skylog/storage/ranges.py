"""A set of positions in a file, kept as ranges that neither overlap nor touch."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class Ranges:
    """Half-open ranges of positions, ascending."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Add `[start, end)` and merge it with the ranges that it overlaps or touches."""
        if start >= end:
            return
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def end_at(self, position: int) -> int:
        """Return the end of the range that contains `position`, or `position` itself if there is none."""
        index = bisect_right(self._starts, position) - 1
        return max(self._ends[index], position) if index >= 0 else position

    def clear(self) -> None:
        self._starts.clear()
        self._ends.clear()
