"""A clock that only moves when a test advances it."""

from __future__ import annotations

from typing import Final

START_MS: Final = 1_700_000_000_000


class ManualClock:
    """Implements `Clock`. `advance_ms` moves both times together; `set_ms` changes only the wall clock.

    >>> clock = ManualClock()
    >>> clock.advance_ms(250)
    >>> clock.monotonic()
    0.25
    """

    def __init__(self, now_ms: int = START_MS) -> None:
        self._now_ms = now_ms
        self._elapsed_ms = 0

    def now_ms(self) -> int:
        """Return the wall clock, in milliseconds since 1970."""
        return self._now_ms

    def monotonic(self) -> float:
        """Return the seconds that have passed, which no change of the wall clock affects."""
        return self._elapsed_ms / 1000

    def advance_ms(self, duration_ms: int) -> None:
        """Let time pass, for both clocks."""
        if duration_ms < 0:
            raise ValueError(f"time does not go back by {-duration_ms} ms; use set_ms for the wall clock")
        self._now_ms += duration_ms
        self._elapsed_ms += duration_ms

    def set_ms(self, now_ms: int) -> None:
        """Set the wall clock, forward or back, as an administrator or NTP would."""
        self._now_ms = now_ms
