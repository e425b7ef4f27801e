"""Repeats a query of the cluster every few seconds.

The interval grows with the duration of the queries, so that they take at most a tenth of the time. A single slow one,
such as one that waited for a broker that did not respond, does not count. After a failure the next attempt follows
soon.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from statistics import median_low
from typing import Final, NoReturn

from skylog.clock import Clock, SystemClock
from skylog.console.monitoring.history import INTERVAL_S

_MAX_SHARE: Final = 10
_MIN_PAUSE_S: Final = 1.0
_OVERDUE_S: Final = 15.0
_KEPT: Final = 3


class Pacing:
    """The pauses between queries, and since when there was no answer."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._took_s: deque[float] = deque(maxlen=_KEPT)
        self._ended_at = self._clock.monotonic()

    @property
    def _usual_s(self) -> float:
        return median_low(self._took_s) if self._took_s else 0.0

    async def repeat(self, query: Callable[[], Awaitable[bool]]) -> NoReturn:
        """Run until cancelled. `query` returns whether it succeeded."""
        while True:
            began = self._clock.monotonic()
            has_succeeded = await query()
            await asyncio.sleep(self.pause_s(self._clock.monotonic() - began, has_succeeded))

    def pause_s(self, took_s: float, has_succeeded: bool) -> float:
        """Return the seconds to wait after a query that has just ended."""
        self._ended_at = self._clock.monotonic()
        if has_succeeded:
            self._took_s.append(took_s)
        share_s = self._usual_s * (_MAX_SHARE - 1) if has_succeeded else 0.0
        return max(INTERVAL_S - took_s, share_s, _MIN_PAUSE_S)

    @property
    def doubt(self) -> str | None:
        """Why the last answer is no longer current: the next one is overdue. None if it is not."""
        silent_s = self._clock.monotonic() - self._ended_at
        if silent_s <= max(_OVERDUE_S, 2 * _MAX_SHARE * self._usual_s):
            return None
        return f"the cluster has not answered for {silent_s:.0f} s"
