"""When the demo stops: after a time, at Ctrl-C, or immediately at the second Ctrl-C."""

from __future__ import annotations

import signal
import time
from threading import Event
from types import FrameType


class StopCondition:
    """The first SIGINT or SIGTERM requests a clean stop, the second raises KeyboardInterrupt.

    Create it in the main thread. `seconds` count from `begin`.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._deadline: float | None = None
        self._requested = Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def begin(self) -> None:
        if self._seconds is not None:
            self._deadline = time.monotonic() + self._seconds

    def wait(self, seconds: float) -> bool:
        """Wait for up to `seconds`. Returns whether the demo should stop."""
        left_s = seconds if self._deadline is None else min(self._deadline - time.monotonic(), seconds)
        self._requested.wait(max(left_s, 0))
        return self._requested.is_set() or (self._deadline is not None and time.monotonic() >= self._deadline)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._requested.is_set():
            raise KeyboardInterrupt
        self._requested.set()
