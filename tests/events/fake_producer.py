"""A fake producer that keeps its messages, so that a test can check what an event log hands over, and when."""

from __future__ import annotations

from typing import Any

import orjson


class FakeProducer:
    """Accepts up to `room` messages. `flush` delivers them, unless the broker `is_down`."""

    def __init__(self, room: int = 1_000_000) -> None:
        self.room = room
        self.is_down = False
        self.messages: list[tuple[str, bytes, bytes | None, int]] = []
        self.delivered_count = 0
        self.failed_count = 0

    def offer(
        self, topic: str, value: bytes, key: bytes | None = None, timestamp_ms: int = 0, headers: Any = None
    ) -> bool:
        if len(self.messages) >= self.room:
            return False
        self.messages.append((topic, value, key, timestamp_ms))
        return True

    def flush(self, timeout_s: float) -> int:
        if not self.is_down:
            self.delivered_count = len(self.messages) - self.failed_count
        return len(self.messages) - self.delivered_count - self.failed_count

    def close(self, timeout_s: float) -> int:
        return self.flush(timeout_s)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [orjson.loads(value) for _, value, _, _ in self.messages]

    @property
    def names(self) -> list[str]:
        return [event["event"] for event in self.events]
