"""When the demonstration ends: after a time, at Ctrl-C, or at once at the second one."""

from __future__ import annotations

import signal
import time
from threading import Event
from types import FrameType


class Ending:
    """The first SIGINT or SIGTERM asks for the end in good order, the second raises KeyboardInterrupt.

    Made in the main thread. `seconds` count from `begin`.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._deadline: float | None = None
        self._asked = Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._hear)

    def begin(self) -> None:
        if self._seconds is not None:
            self._deadline = time.monotonic() + self._seconds

    def wait(self, seconds: float) -> bool:
        """Let so much time pass, or less if the end comes before; whether it has come."""
        left_s = seconds if self._deadline is None else min(self._deadline - time.monotonic(), seconds)
        self._asked.wait(max(left_s, 0))
        return self._asked.is_set() or (self._deadline is not None and time.monotonic() >= self._deadline)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self._asked.is_set():
            raise KeyboardInterrupt
        self._asked.set()
