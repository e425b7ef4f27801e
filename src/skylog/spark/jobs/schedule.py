"""When a job works: once, at intervals, or without a pause."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Event
from typing import Any, Final

IDLE_S: Final = 0.5
"""How long a job that runs without a pause waits where nothing has come."""


@dataclass(frozen=True)
class Schedule:
    """`every_s` is None for once: everything that is there, and then the end; 0 for without a pause."""

    every_s: float | None = None

    @property
    def trigger(self) -> dict[str, Any]:
        """For `DataStreamWriter.trigger`."""
        if self.every_s is None:
            return {"availableNow": True}
        return {"processingTime": f"{int(self.every_s * 1000)} milliseconds"}

    @property
    def has_rounds(self) -> bool:
        """Whether a round works on what is there when it begins; without a pause there is nothing to wait for."""
        return self.every_s != 0

    def rounds(self, stop: Event) -> Iterator[None]:
        """Come back when it is time to work, until `stop` is set or, if once, the round is over."""
        while not stop.is_set():
            began = time.monotonic()
            yield
            if self.every_s is None:
                return
            stop.wait(max(self.every_s - (time.monotonic() - began), 0) or IDLE_S)


ONCE: Final = Schedule()
CONTINUOUS: Final = Schedule(0)
