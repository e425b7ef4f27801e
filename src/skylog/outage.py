"""Tells a passing outage from a lasting one: a cluster whose leaders move is no reason for an alarm."""

from __future__ import annotations

from typing import Final

from skylog.clock import Clock

PATIENCE_S: Final = 30.0


class Outage:
    """What cannot work while others are away reports each attempt here."""

    def __init__(self, clock: Clock, patience_s: float = PATIENCE_S) -> None:
        self._clock = clock
        self._patience_s = patience_s
        self._since_s: float | None = None

    def failed(self) -> bool:
        """Note a failed attempt. Return whether the outage has lasted too long to be normal."""
        now_s = self._clock.monotonic()
        if self._since_s is None:
            self._since_s = now_s
        return now_s - self._since_s >= self._patience_s

    @property
    def is_over(self) -> bool:
        return self._since_s is None

    def ended(self) -> None:
        self._since_s = None
