"""Counts lost events by reason, and logs them at a limited rate."""

from __future__ import annotations

import logging
import threading
from enum import StrEnum
from typing import Final

from skylog.clock import Clock

WARNING_INTERVAL_S: Final = 10.0

logger = logging.getLogger("skylog.events")


class DropReason(StrEnum):
    """Why an event was dropped."""

    UNENCODABLE = "unencodable"
    """An attribute or the user cannot be encoded."""
    SCHEMA_REFUSED = "schema_refused"
    """The registry refuses the schema of the event's class."""
    BUFFER_FULL = "buffer_full"
    """The producer's buffer was full, for example because no broker was reachable for too long."""
    REFUSED = "refused"
    """The producer can never send it, for example because it is too large."""
    UNDELIVERED = "undelivered"
    """The producer gave up: no broker stored it in time."""


class Drops:
    """Thread-safe. Logs the first loss immediately, then one line per interval with the sum."""

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
        """Log the losses since the last line."""
        with self._lock:
            lost = {reason.value: count for reason, count in self._unlogged.items() if count}
            error, self._last_error = self._last_error, ""
            self._unlogged = dict.fromkeys(DropReason, 0)
            self._quiet_until = self._clock.monotonic() + WARNING_INTERVAL_S
        if lost:
            reasons = ", ".join(f"{count} {reason}" for reason, count in lost.items())
            logger.warning("dropped events for topic %s: %s%s", self._topic, reasons, f" ({error})" if error else "")

    def counts(self) -> dict[str, int]:
        """Return the count of every reason, including zeros."""
        with self._lock:
            return {reason.value: count for reason, count in self._counts.items()}
