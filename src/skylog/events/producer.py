"""The protocol of a producer for event tracking. `skylog.client.Producer` implements it; it is not imported here."""

from __future__ import annotations

from typing import Protocol


class EventProducer(Protocol):
    """A producer whose queue buffers the events: bounded, sent in batches in the background."""

    def offer(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        timestamp_ms: int = 0,
        headers: list[tuple[str, str | bytes | None]] | None = None,
    ) -> bool:
        """Queue a message without waiting; return False if the queue is full."""

    def flush(self, timeout_s: float) -> int:
        """Wait until the queue is empty, at most `timeout_s`; return the number of messages left."""

    def close(self, timeout_s: float) -> int:
        """Flush and close; return the number of messages left. Called when the process exits."""

    @property
    def delivered_count(self) -> int:
        """The number of stored messages."""

    @property
    def failed_count(self) -> int:
        """The number of queued messages that have failed."""
