"""Messages as they come. For people only so many as can be read, with a count of what was left out."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from skylog.client import Admin, BrokerUnreachableError, Connection, Message, PartitionReader
from skylog.console.messages.view import Excerpt, Row, excerpt
from skylog.model import TopicPartition

ROWS_PER_S: Final = 50
GLIMPSE_S: Final = 0.2
AWAY_S: Final = 3.0
SETTINGS: Final[dict[str, Any]] = {"fetch.message.max.bytes": 256 * 1024, "queued.max.messages.kbytes": 2048}


class Seen(NamedTuple):
    """What came in a moment. `is_away` if no broker has been reached for a while, so that nothing can come."""

    messages: list[Message]
    is_away: bool


@dataclass(frozen=True, slots=True)
class Glimpse:
    """What came since the last one: the newest of it, oldest first, and how many came and were not shown."""

    rows: list[Row]
    skipped: int
    is_away: bool


def follow(connection: Connection, starts: Mapping[TopicPartition, int]) -> Iterator[Seen]:
    """What comes, for ever; no messages every moment in which nothing does."""
    reader = PartitionReader(connection, starts, settings=SETTINGS)
    admin: Admin | None = None
    try:
        while True:
            messages = reader.read()
            is_away = reader.lost_s > AWAY_S
            yield Seen(messages, is_away)
            if is_away:
                # By itself a reader learns only from the next message that the broker is back.
                admin = admin or Admin(connection)
                with suppress(BrokerUnreachableError):
                    admin.list_topics()
    finally:
        reader.close()


def glimpses(batches: Iterable[Seen]) -> Iterator[Glimpse]:
    """At most ROWS_PER_S rows, after a pause that many at once; an empty glimpse where nothing came."""
    recent: deque[Excerpt] = deque(maxlen=ROWS_PER_S)
    came = 0
    allowance, counted_at = float(ROWS_PER_S), time.monotonic()
    for messages, is_away in batches:
        recent.extend(map(excerpt, messages[-ROWS_PER_S:]))
        came += len(messages)
        now = time.monotonic()
        if came and now - counted_at < GLIMPSE_S:
            continue
        allowance = min(allowance + (now - counted_at) * ROWS_PER_S, ROWS_PER_S)
        counted_at = now
        shown = list(recent)[-int(allowance) :] if allowance >= 1 else []
        allowance -= len(shown)
        yield Glimpse([each.row() for each in shown], came - len(shown), is_away)
        recent.clear()
        came = 0
