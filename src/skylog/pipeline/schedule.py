"""When a job runs: once, at intervals, or continuously."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Event
from typing import Any, Final

IDLE_S: Final = 0.5
"""The pause of a continuous job if there are no new records."""


@dataclass(frozen=True)
class Schedule:
    """Run every `every_s` seconds. None means once, with the available records. 0 means continuously."""

    every_s: float | None = None

    @property
    def trigger(self) -> dict[str, Any]:
        """The arguments for `DataStreamWriter.trigger`."""
        if self.every_s is None:
            return {"availableNow": True}
        return {"processingTime": f"{int(self.every_s * 1000)} milliseconds"}

    @property
    def has_rounds(self) -> bool:
        """Whether a round processes only the records available at its start. False if the job runs continuously."""
        return self.every_s != 0

    def rounds(self, stop: Event) -> Iterator[None]:
        """Yield at the start of each round, until `stop` is set or, if once, after the first round."""
        while not stop.is_set():
            began = time.monotonic()
            yield
            if self.every_s is None:
                return
            stop.wait(max(self.every_s - (time.monotonic() - began), 0) or IDLE_S)


ONCE: Final = Schedule()
CONTINUOUS: Final = Schedule(0)
