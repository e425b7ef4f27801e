"""How long the event loop stood still: the one figure that bounds what any client can wait for because of another.

A timer that is due every `INTERVAL_S` is late by as long as something held the loop, less the rest of the interval. The
first second after the start does not count: Python is still loading code then.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from time import perf_counter
from typing import Final

from skylog.limited_logger import LimitedLogger

START_S: Final = 1.0
INTERVAL_S: Final = 0.025
LONG_PAUSE_S: Final = 0.1
_SLOT_S: Final = 5.0
_SLOTS: Final = 12  # a minute

limited_logger = LimitedLogger(logging.getLogger(__name__))


class Pauses:
    """The longest pause since the start and in the last minute, and how many were long. Times are handed in."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.long_pauses = 0
        self._slots: deque[tuple[int, float]] = deque(maxlen=_SLOTS)  # number of the slot, its longest pause

    def add(self, pause_s: float, now_s: float) -> None:
        self.longest_s = max(self.longest_s, pause_s)
        self.long_pauses += pause_s > LONG_PAUSE_S
        slot = int(now_s / _SLOT_S)
        if self._slots and self._slots[-1][0] == slot:
            self._slots[-1] = slot, max(self._slots[-1][1], pause_s)
        else:
            self._slots.append((slot, pause_s))

    def longest_of_last_minute_s(self, now_s: float) -> float:
        first = int(now_s / _SLOT_S) - _SLOTS
        return max((pause_s for slot, pause_s in self._slots if slot > first), default=0.0)


class PauseProbe:
    """Watches the event loop that it is started on."""

    def __init__(self) -> None:
        self.pauses = Pauses()
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(START_S, self._wait)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        self._due_s = perf_counter() + INTERVAL_S
        self._timer = self._loop.call_later(INTERVAL_S, self._look)

    def _look(self) -> None:
        now_s = perf_counter()
        pause_s = max(now_s - self._due_s, 0.0)
        self.pauses.add(pause_s, now_s)
        if pause_s > LONG_PAUSE_S:
            limited_logger.warning("the event loop stood still for %.0f ms: no client was served", pause_s * 1000)
        self._wait()

    @property
    def longest_of_last_minute_s(self) -> float:
        return self.pauses.longest_of_last_minute_s(perf_counter())
