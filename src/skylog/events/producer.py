"""What event tracking asks of a producer. `skylog.client.Producer` has it; this package does not know that one."""

from __future__ import annotations

from typing import Protocol


class EventProducer(Protocol):
    """The producer's queue is the buffer of events: bounded, sent in batches in the background."""

    def offer(self, topic: str, value: bytes, key: bytes | None = None, timestamp_ms: int = 0) -> bool:
        """Queue a message without ever waiting, whatever the broker does; False where the queue is full."""

    def flush(self, timeout_s: float) -> int:
        """Wait until the queue is empty; how many messages are still in it."""

    @property
    def delivered_count(self) -> int:
        """How many messages are stored."""

    @property
    def failed_count(self) -> int:
        """How many messages were taken but given up."""
