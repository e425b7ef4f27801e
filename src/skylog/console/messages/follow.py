"""Follows new messages. Pages get a limited number of rows per second, and the number of messages left out."""

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
UPDATE_S: Final = 0.2
UNREACHABLE_S: Final = 3.0
SETTINGS: Final[dict[str, Any]] = {"fetch.message.max.bytes": 256 * 1024, "queued.max.messages.kbytes": 2048}


class FollowBatch(NamedTuple):
    """New messages. `is_unreachable` if no broker has been reachable for UNREACHABLE_S."""

    messages: list[Message]
    is_unreachable: bool


@dataclass(frozen=True, slots=True)
class FollowUpdate:
    """The newest messages since the last update, oldest first, and the number of others."""

    rows: list[Row]
    skipped: int
    is_unreachable: bool


def follow(connection: Connection, starts: Mapping[TopicPartition, int]) -> Iterator[FollowBatch]:
    """Yield new messages without end, and empty batches while there are none."""
    reader = PartitionReader(connection, starts, settings=SETTINGS)
    admin: Admin | None = None
    try:
        while True:
            messages = reader.read()
            is_unreachable = reader.lost_s > UNREACHABLE_S
            yield FollowBatch(messages, is_unreachable)
            if is_unreachable:
                # A reader alone would notice only with the next message that the broker is back.
                admin = admin or Admin(connection)
                with suppress(BrokerUnreachableError):
                    admin.list_topics()
    finally:
        reader.close()


def follow_updates(batches: Iterable[FollowBatch]) -> Iterator[FollowUpdate]:
    """Limit batches to ROWS_PER_S rows, with bursts of the same number. Updates are empty if nothing is new."""
    recent: deque[Excerpt] = deque(maxlen=ROWS_PER_S)
    received = 0
    allowance, counted_at = float(ROWS_PER_S), time.monotonic()
    for messages, is_unreachable in batches:
        recent.extend(map(excerpt, messages[-ROWS_PER_S:]))
        received += len(messages)
        now = time.monotonic()
        if received and now - counted_at < UPDATE_S:
            continue
        allowance = min(allowance + (now - counted_at) * ROWS_PER_S, ROWS_PER_S)
        counted_at = now
        shown = list(recent)[-int(allowance) :] if allowance >= 1 else []
        allowance -= len(shown)
        yield FollowUpdate([each.row() for each in shown], received - len(shown), is_unreachable)
        recent.clear()
        received = 0
