"""When a job works: once, at intervals, or without a pause."""

from __future__ import annotations

from collections.abc import Callable
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

    def run(self, step: Callable[[], bool], stop: Event) -> None:
        """Call `step`, which says whether it found something, until `stop` is set or, if once, it found nothing."""
        while not stop.is_set():
            if step():
                continue  # there may be more
            if self.every_s is None:
                return
            stop.wait(self.every_s or IDLE_S)


ONCE: Final = Schedule()
CONTINUOUS: Final = Schedule(0)
