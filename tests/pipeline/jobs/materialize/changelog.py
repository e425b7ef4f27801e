"""A changelog with random changes, and what its table must be."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from skylog import Admin, Producer
from skylog.testing import consume, wait_until

SCHEMA = "name STRING, age INT"
START_MS = 1_700_000_000_000

Rows = dict[str, tuple[Any, ...]]


class Changelog:
    """Sends random changes and remembers them: a dict of dicts, one for each offset."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.sent: dict[int, list[tuple[str, dict[str, Any] | None]]] = {0: [], 1: []}
        self._random = random.Random(17)

    def change(self, count: int) -> None:
        with Producer(self.bootstrap) as producer, producer.batch():
            for _ in range(count):
                number = self._random.randrange(40)
                row = {"name": f"user {number}", "age": self._random.randrange(100)}
                value = None if self._random.random() < 0.25 else row
                changes = self.sent[number % 2]
                total = sum(map(len, self.sent.values()))
                changes.append((f"k{number}", value))
                time_ms = START_MS + total * 1000
                producer.send(self.topic, value, f"k{number}", partition=number % 2, timestamp_ms=time_ms)

    def rows(self, ends: Mapping[int, int] | None = None) -> Rows:
        found: Rows = {}
        for partition, changes in self.sent.items():
            for key, value in changes[: None if ends is None else ends[partition]]:
                found.pop(key, None)
                if value is not None:
                    found[key] = (value["name"], value["age"])
        return found

    def compact(self) -> None:
        """Compact the topic, and wait until it is done."""
        Admin(self.bootstrap).alter_configs(self.topic, {"min.compaction.lag.ms": None})
        total = sum(map(len, self.sent.values()))
        wait_until(lambda: len(consume(self.bootstrap, self.topic)) < total / 2, "compaction", 60)
