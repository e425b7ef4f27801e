"""Measures how long the event loop was blocked, which bounds how long one client can make another wait.

A timer is due every `INTERVAL_S`. It is late by the time the loop was blocked, less the rest of the interval. The first
second after startup does not count, because Python is still loading code.
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
    """The longest pause since startup and in the last minute, and the number of long ones. The caller passes times."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.long_pauses = 0
        self._slots: deque[tuple[int, float]] = deque(maxlen=_SLOTS)  # slot number, longest pause in the slot

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
    """Measures the pauses of the event loop on which it is started."""

    def __init__(self) -> None:
        self.pauses = Pauses()
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(START_S, self._schedule)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        self._due_s = perf_counter() + INTERVAL_S
        self._timer = self._loop.call_later(INTERVAL_S, self._measure)

    def _measure(self) -> None:
        now_s = perf_counter()
        pause_s = max(now_s - self._due_s, 0.0)
        self.pauses.add(pause_s, now_s)
        if pause_s > LONG_PAUSE_S:
            limited_logger.warning("the event loop was blocked for %.0f ms; no client was served", pause_s * 1000)
        self._schedule()

    @property
    def longest_of_last_minute_s(self) -> float:
        return self.pauses.longest_of_last_minute_s(perf_counter())
