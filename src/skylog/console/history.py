"""The last hour in figures, in memory: what plots are drawn from."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from math import isnan, nan
from typing import Final

INTERVAL_S: Final = 5.0
LENGTH: Final = 720  # of such intervals: an hour
MAX_SERIES: Final = 4000  # of 6 KB each

Key = tuple[str, ...]
"""What a series is about: its name, then what it is of, such as ("lag", group, topic, partition)."""

Points = list[tuple[int, float]]
"""Milliseconds since 1970 and a value."""


class History:
    """Rings of values over the same moments. A series that has had no value for the whole hour is forgotten, and
    beyond MAX_SERIES no new one is begun: `is_full` says so."""

    def __init__(self, length: int = LENGTH) -> None:
        self._length = length
        self._times = array("q")
        self._next = 0
        self._series: dict[Key, array[float]] = {}
        self._seen: dict[Key, int] = {}
        self._count = 0
        self.is_full = False

    def record(self, time_ms: int, values: Mapping[Key, float]) -> None:
        """One moment, later than all before."""
        slot = self._next
        if len(self._times) < self._length:
            self._times.append(time_ms)
        else:
            self._times[slot] = time_ms
        self._count += 1
        self._next = (slot + 1) % self._length
        for key, ring in self._series.items():
            ring[slot] = values.get(key, nan)
        for key, value in values.items():
            if key not in self._series:
                if len(self._series) >= MAX_SERIES:
                    self.is_full = True
                    continue
                self._series[key] = array("d", [nan]) * self._length
            self._series[key][slot] = value
            self._seen[key] = self._count
        for key in [key for key, seen in self._seen.items() if seen <= self._count - self._length]:
            del self._series[key], self._seen[key]

    def points(self, key: Key) -> Points:
        """A series from old to new, without the moments at which it had no value."""
        ring = self._series.get(key)
        if ring is None:
            return []
        start = self._next if len(self._times) == self._length else 0
        slots = ((start + step) % self._length for step in range(len(self._times)))
        return [(self._times[slot], ring[slot]) for slot in slots if not isnan(ring[slot])]

    def unchanged_ms(self, key: Key) -> int:
        """For how long a series has had its latest value; 0 where it has none."""
        points = self.points(key)
        if not points:
            return 0
        since_ms, value = points[-1]
        for time_ms, earlier in reversed(points):
            if earlier != value:
                break
            since_ms = time_ms
        return points[-1][0] - since_ms

    def last(self, key: Key) -> float | None:
        """The latest value, if there was one at the latest moment."""
        if not self._times or key not in self._series:
            return None
        value = self._series[key][self._next - 1 if len(self._times) == self._length else len(self._times) - 1]
        return None if isnan(value) else value
