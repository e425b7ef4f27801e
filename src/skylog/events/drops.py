"""The events that were lost: counted by reason, and said in the log, but not once per event."""

from __future__ import annotations

import logging
import threading
from enum import StrEnum
from typing import Final

from skylog.clock import Clock

WARNING_INTERVAL_S: Final = 10.0

logger = logging.getLogger("skylog.events")


class DropReason(StrEnum):
    UNENCODABLE = "unencodable"
    """An attribute or the user has no form in JSON."""
    BUFFER_FULL = "buffer_full"
    """The producer's buffer had no room, as when no broker was reachable for too long."""
    REFUSED = "refused"
    """The producer would never be able to send it: too large, say."""
    UNDELIVERED = "undelivered"
    """The producer gave up: no broker stored it in time."""


class Drops:
    """Thread-safe. The first loss is logged at once, then one line sums up what was lost in each interval."""

    def __init__(self, topic: str, clock: Clock) -> None:
        self._topic = topic
        self._clock = clock
        self._lock = threading.RLock()
        self._counts = dict.fromkeys(DropReason, 0)
        self._unlogged = dict.fromkeys(DropReason, 0)
        self._last_error = ""
        self._quiet_until = float("-inf")

    def add(self, reason: DropReason, count: int = 1, error: str = "") -> None:
        with self._lock:
            self._counts[reason] += count
            self._unlogged[reason] += count
            self._last_error = error or self._last_error
            if self._clock.monotonic() < self._quiet_until:
                return
        self.warn()

    def warn(self) -> None:
        """Log what has not been logged yet."""
        with self._lock:
            lost = {reason.value: count for reason, count in self._unlogged.items() if count}
            error, self._last_error = self._last_error, ""
            self._unlogged = dict.fromkeys(DropReason, 0)
            self._quiet_until = self._clock.monotonic() + WARNING_INTERVAL_S
        if lost:
            reasons = ", ".join(f"{count} {reason}" for reason, count in lost.items())
            logger.warning("dropped events for topic %s: %s%s", self._topic, reasons, f" ({error})" if error else "")

    def counts(self) -> dict[str, int]:
        """Of every reason, also of those that have not been met."""
        with self._lock:
            return {reason.value: count for reason, count in self._counts.items()}
