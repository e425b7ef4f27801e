"""Messages as they come. For people only so many as can be read, with a count of what was left out."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from skylog.client import Connection, Message, PartitionReader
from skylog.console.messages.view import Row, row
from skylog.model import TopicPartition

ROWS_PER_S: Final = 50
GLIMPSE_S: Final = 0.2
SETTINGS: Final[dict[str, Any]] = {"fetch.message.max.bytes": 256 * 1024, "queued.max.messages.kbytes": 2048}


@dataclass(frozen=True, slots=True)
class Glimpse:
    """What came since the last one: the newest of it, oldest first, and how many came and were not shown."""

    rows: list[Row]
    skipped: int


def follow(connection: Connection, starts: Mapping[TopicPartition, int]) -> Iterator[list[Message]]:
    """What comes, for ever; an empty list every moment in which nothing does."""
    reader = PartitionReader(connection, starts, settings=SETTINGS)
    try:
        while True:
            yield reader.read()
    finally:
        reader.close()


def glimpses(batches: Iterable[list[Message]]) -> Iterator[Glimpse]:
    """At most ROWS_PER_S rows, after a pause that many at once; an empty glimpse where nothing came."""
    recent: deque[Message] = deque(maxlen=ROWS_PER_S)
    came = 0
    allowance, counted_at = float(ROWS_PER_S), time.monotonic()
    for messages in batches:
        recent.extend(messages)
        came += len(messages)
        now = time.monotonic()
        if came and now - counted_at < GLIMPSE_S:
            continue
        allowance = min(allowance + (now - counted_at) * ROWS_PER_S, ROWS_PER_S)
        counted_at = now
        shown = list(recent)[-int(allowance) :] if allowance >= 1 else []
        allowance -= len(shown)
        yield Glimpse([row(message) for message in shown], came - len(shown))
        recent.clear()
        came = 0
