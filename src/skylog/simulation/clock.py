"""The clocks of a simulated process."""

from __future__ import annotations

from typing import Final

from skylog.simulation.loop import VirtualLoop

START_MS: Final = 1_700_000_000_000


class VirtualClock:
    """Implements `Clock` on virtual time. `skew_ms` is how far the wall clock of the host is off."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.skew_ms = 0

    def now_ms(self) -> int:
        return START_MS + int(self._loop.time() * 1000) + self.skew_ms

    def monotonic(self) -> float:
        return self._loop.time()
