"""Time, handed in to whoever needs it, so that tests can hold it in their hands."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What the parts of skylog may know of time."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970: for timestamps in records and files."""

    def monotonic(self) -> float:
        """Seconds that never go back: for timeouts and intervals."""


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
