"""A rate over the last few windows of time, as Kafka measures it for quotas. Pure: the time is passed in.

Amounts are summed in windows of one length. A window that began more than `count` windows ago is forgotten. While there
are fewer windows than that, the time before the first one counts as quiet: `count - 1` full windows and what has passed
of the current one. So a client that was quiet may send the amount of `count - 1` windows at once.
"""

from __future__ import annotations

from collections import deque
from math import ceil
from typing import Final

_NOISE_MS: Final = 1e-6  # of floats
_LEAST_S: Final = 0.001  # a single window of which no time has passed has no rate


class WindowedRate:
    """Amounts over `count` windows of `window_s` seconds."""

    __slots__ = ("_count", "_total", "_window_s", "_windows")

    def __init__(self, count: int, window_s: float) -> None:
        self._count = count
        self._window_s = window_s
        self._windows: deque[list[float]] = deque()  # when each began, and its sum
        self._total = 0.0

    def record(self, amount: float, now_s: float) -> None:
        """Add an amount. A negative one takes back what was just recorded."""
        self._forget(now_s)
        self._total += amount
        windows = self._windows
        if windows and now_s - windows[-1][0] < self._window_s:
            windows[-1][1] += amount
        else:
            windows.append([now_s, amount])

    def is_quiet(self, now_s: float) -> bool:
        """Whether nothing is recorded in the windows that count."""
        self._forget(now_s)
        return self._total <= 0

    def rate(self, now_s: float) -> float:
        """Return the amount per second."""
        self._forget(now_s)
        return self._total / self._span_s(now_s)

    def excess_s(self, limit: float, now_s: float) -> float:
        """Return how long to be quiet so that the rate falls to `limit`, in whole milliseconds; 0 if it is there."""
        self._forget(now_s)
        excess_ms = (self._total / limit - self._span_s(now_s)) * 1000
        return max(0, ceil(excess_ms - _NOISE_MS)) / 1000

    def burst(self, limit: float) -> float:
        """Return how much a client that was quiet may send at once without being above `limit`."""
        return limit * max((self._count - 1) * self._window_s, _LEAST_S)

    def _span_s(self, now_s: float) -> float:
        """Return the time that the windows stand for."""
        passed_s = now_s - self._windows[0][0] if self._windows else 0.0
        missing = self._count - 1 - int(passed_s / self._window_s)
        return max(passed_s + max(missing, 0) * self._window_s, _LEAST_S)

    def _forget(self, now_s: float) -> None:
        windows, oldest_s = self._windows, now_s - self._count * self._window_s
        while windows and windows[0][0] <= oldest_s:
            self._total -= windows.popleft()[1]
        if not windows:
            self._total = 0.0  # without what floats leave over
