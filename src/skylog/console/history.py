"""The last hour in figures, in memory: what plots are drawn from."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from math import isnan, nan
from typing import Final

INTERVAL_S: Final = 5.0
LENGTH: Final = 720  # of such intervals: an hour
HOUR_MS: Final = 3_600_000
MAX_SERIES: Final = 6000  # of 6 KB each
MAX_DETAILS: Final = 2000  # of those, at most so many may be of single partitions

Key = tuple[str, ...]
"""What a series is about: its name, then what it is of, such as ("lag", group) or ("lag", group, topic, partition)."""

Points = list[tuple[int, float]]
"""Milliseconds since 1970 and a value."""


class History:
    """Rings of values over the same moments. A series that has had no value for the whole time is forgotten.

    Beyond MAX_SERIES, and MAX_DETAILS of single partitions, no new one is begun; `is_full` says that one was not.
    """

    def __init__(self, length: int = LENGTH) -> None:
        self._length = length
        self._times = array("q")
        self._next = 0
        self._count = 0
        self._details = 0
        self._series: dict[Key, array[float]] = {}
        self._seen: dict[Key, int] = {}
        self._since_ms: dict[Key, int] = {}
        self.is_full = False

    def record(self, time_ms: int, values: Mapping[Key, float]) -> None:
        """One moment, later than all before."""
        slot = self._next
        if len(self._times) < self._length:
            self._times.append(time_ms)
        else:
            self._times[slot] = time_ms
        self._count += 1
        for key, ring in self._series.items():
            if key not in values:
                ring[slot] = nan
        for key, value in values.items():
            known = self._series.get(key) or self._begin(key)
            if known is None:
                continue
            if known[slot - 1] != value:
                self._since_ms[key] = time_ms
            known[slot] = value
            self._seen[key] = self._count
        self._next = (slot + 1) % self._length
        for key in [key for key, seen in self._seen.items() if seen <= self._count - self._length]:
            del self._series[key], self._seen[key], self._since_ms[key]
            self._details -= _is_detail(key)

    def _begin(self, key: Key) -> array[float] | None:
        is_detail = _is_detail(key)
        if len(self._series) >= MAX_SERIES or (is_detail and self._details >= MAX_DETAILS):
            self.is_full = self.is_full or not is_detail
            return None
        self._details += is_detail
        self._series[key] = array("d", [nan]) * self._length
        return self._series[key]

    def points(self, key: Key, span_ms: int = HOUR_MS) -> Points:
        """A series from old to new, without the moments at which it had no value."""
        return list(self._backward(key, span_ms))[::-1]

    def _backward(self, key: Key, span_ms: int) -> Iterator[tuple[int, float]]:
        ring = self._series.get(key)
        if ring is None:
            return
        latest_ms = self._times[self._next - 1]
        for step in range(1, len(self._times) + 1):
            slot = (self._next - step) % self._length
            if latest_ms - self._times[slot] > span_ms:
                return
            if not isnan(ring[slot]):
                yield self._times[slot], ring[slot]

    def unchanged_ms(self, key: Key) -> int:
        """For how long a series has had its latest value; 0 where it has none."""
        return self._times[self._next - 1] - self._since_ms[key] if key in self._since_ms else 0

    def last(self, key: Key) -> float | None:
        """The latest value, if there was one at the latest moment."""
        ring = self._series.get(key)
        value = nan if ring is None else ring[self._next - 1]
        return None if isnan(value) else value


def _is_detail(key: Key) -> bool:
    return len(key) > 2
