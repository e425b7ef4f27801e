"""The clock that components receive as an argument, so that tests can control time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The only source of time for the components of skylog."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970, for timestamps in records and files."""

    def monotonic(self) -> float:
        """Monotonic seconds, for timeouts and intervals."""


class SystemClock:
    """The clocks of the operating system."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
