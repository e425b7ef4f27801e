"""The events that jobs process while they are killed."""

from __future__ import annotations

from collections import Counter
from typing import Final

from skylog import Admin, Producer
from skylog.audit import ProducerAudit
from tests.proof import MILLION

EVENTS: Final = MILLION
PARTITIONS: Final = 2
BATCH: Final = EVENTS // 24  # small, so that there is something left to do after every kill
UNPARSED: Final = EVENTS // 100
PARSED: Final = EVENTS - UNPARSED
PAGES: Final = 77
USERS: Final = 1000
ORGANISATIONS: Final = 10
DAYS: Final = 3
_DAY_MS: Final = 86_400_000
_MAY_1_MS: Final = 1_714_564_800_000  # noon
_PATIENCE_S: Final = 300


def is_event(number: int) -> bool:
    """Every hundredth record is none."""
    return number % 100 != 99


def _day(number: int) -> int:
    """One day after the other: of a batch the brokers' audit knows the times of the first and the last record only."""
    return number * DAYS // EVENTS


def fill(bootstrap: str, topic: str) -> None:
    Admin(bootstrap).create_topic(topic, PARTITIONS, configs={"retention.ms": "-1"})  # its time is long ago
    with Producer(bootstrap, audit=ProducerAudit("website"), config={"linger.ms": 50}) as producer:
        for number in range(EVENTS):
            value = b'{"id":"%d","event":"page.view","user":{"id":%d},"attributes":{"page":"/%d","org_id":%d}}' % (
                number,
                number % USERS,
                number % PAGES,
                number % ORGANISATIONS,
            )
            producer.send(
                topic,
                value if is_event(number) else b"no event %d" % number,
                partition=number % PARTITIONS,
                timestamp_ms=_MAY_1_MS + _DAY_MS * _day(number),
            )
        assert producer.flush(_PATIENCE_S) == 0
        assert producer.failed_count == 0


def views_by_page() -> dict[str, int]:
    return dict(Counter(f"/{number % PAGES}" for number in range(EVENTS) if is_event(number)))


def last_by_user() -> dict[int, int]:
    """The greatest id of each user."""
    return {number % USERS: number for number in range(EVENTS) if is_event(number)}


def visits() -> dict[tuple[str, str], int]:
    """Visits by organisation and day."""
    return dict(
        Counter(
            (str(number % ORGANISATIONS), f"2024-05-0{1 + _day(number)}")
            for number in range(EVENTS)
            if is_event(number)
        )
    )
