"""Events as the event library sends them, for the tests of jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from skylog import Producer

NOON_MS: Final = 1_772_366_400_000  # 2026-03-01T12:00Z


class Logged(NamedTuple):
    """An event `at_s` seconds after noon."""

    at_s: float
    event: str
    user: str | None
    attributes: dict[str, Any]


def send(bootstrap: str, topic: str, events: Iterable[Logged], partitions: int = 2) -> None:
    """Send events to the partitions in turn."""
    with Producer(bootstrap) as producer, producer.batch():
        for number, each in enumerate(events):
            user = None if each.user is None else {"id": each.user, "created_at": 1.0}
            value = {"event": each.event, "user": user, "attributes": each.attributes}
            at_ms = NOON_MS + int(each.at_s * 1000)
            producer.send(topic, value, partition=number % partitions, timestamp_ms=at_ms)
