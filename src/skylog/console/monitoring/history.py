"""The figures of the last hour, in memory, for plots and trends."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from math import inf, isnan, nan
from typing import Final

INTERVAL_S: Final = 5.0
LENGTH: Final = 720  # intervals: an hour
HOUR_MS: Final = 3_600_000
MAX_SERIES: Final = 6000  # 6 KB each
MAX_DETAILS: Final = 2000  # how many of them may be about single partitions

Key = tuple[str, ...]
"""The name of a figure and its subject, such as ("lag", group) or ("lag", group, topic, partition)."""

Points = list[tuple[int, float]]
"""Pairs of milliseconds since 1970 and a value."""


class History:
    """Ring buffers of values over the same times. A series without a value for the whole length is dropped.

    Beyond MAX_SERIES, and beyond MAX_DETAILS for single partitions, new series are ignored.
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

    def record(self, time_ms: int, values: Mapping[Key, float]) -> None:
        """Add the values of one time, which must be later than all before."""
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
            return None
        self._details += is_detail
        self._series[key] = array("d", [nan]) * self._length
        return self._series[key]

    def points(self, key: Key, span_ms: int = HOUR_MS) -> Points:
        """Return a series from old to new, without the times at which it had no value."""
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
        """Return for how long a series has had its latest value; 0 if it has none."""
        return self._times[self._next - 1] - self._since_ms[key] if key in self._since_ms else 0

    def since_sum_ms(self, keys: Sequence[Key], limit: float) -> float | None:
        """Return the time since the sum of series was last at most `limit`. The sum must never decrease.

        None if that was before the first value. Takes logarithmic time.
        """
        rings = [self._series.get(key) for key in keys]
        if not self._times or any(ring is None for ring in rings):
            return None

        def total(age: int) -> float:
            slot = (self._next - 1 - age) % self._length
            found = sum(ring[slot] for ring in rings if ring is not None)
            return -inf if isnan(found) else found

        low, high = 0, len(self._times)  # the sum is larger at ages below `low`, and not at `high` and above
        while low < high:
            middle = (low + high) // 2
            if total(middle) > limit:
                low = middle + 1
            else:
                high = middle
        if low == len(self._times) or total(low) == -inf:
            return None
        return float(self._times[self._next - 1] - self._times[(self._next - 1 - low) % self._length])

    def last(self, key: Key) -> float | None:
        """Return the value at the latest time, or None."""
        ring = self._series.get(key)
        value = nan if ring is None else ring[self._next - 1]
        return None if isnan(value) else value


def _is_detail(key: Key) -> bool:
    return len(key) > 2
