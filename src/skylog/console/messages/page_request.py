"""A request for a page of messages, and its position in the topic: a cursor with one offset per partition."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from skylog.client import Admin, OffsetRange
from skylog.console.messages.browse import Cursor
from skylog.console.messages.selection import clamp, offsets_at, parse_partitions
from skylog.console.server.fields import FieldError, Fields
from skylog.model import TopicPartition

DEFAULT_LIMIT: Final = 50
MAX_LIMIT: Final = 500
ORDERS: Final = ("newest", "oldest")
_CURSOR: Final = re.compile(r"\d{1,9}:\d{1,19}(?:,\d{1,9}:\d{1,19})*", re.ASCII)


@dataclass(frozen=True, slots=True)
class PageRequest:
    """At most one of `offset`, `time_ms`, `before` and `after` is set; without any, the page has the newest messages.

    `order` is the order of the rows.
    """

    partitions: tuple[int, ...] | None
    limit: int
    order: str
    offset: int | None = None
    time_ms: int | None = None
    before: Mapping[int, int] | None = None
    after: Mapping[int, int] | None = None

    @property
    def is_backward(self) -> bool:
        return self.offset is None and self.time_ms is None and self.after is None

    def cursor(self, admin: Admin, held: dict[TopicPartition, OffsetRange]) -> Cursor:
        """Return the offsets to read from, within the offsets that the partitions hold."""
        if self.offset is not None:
            return {key: clamp(self.offset, offsets) for key, offsets in held.items()}
        if self.time_ms is not None:
            found = offsets_at(admin, held, self.time_ms)
            return {key: clamp(found[key], offsets) for key, offsets in held.items()}
        given = self.after if self.before is None else self.before
        if given is None:
            return {key: offsets.end_offset for key, offsets in held.items()}
        return {key: clamp(given.get(key.partition, 0), offsets) for key, offsets in held.items()}


def parse_page_request(fields: Fields) -> PageRequest:
    """Parse `partition`, `limit`, `order`, and one of `offset`, `time`, `before` and `after`."""
    given = [name for name in ("offset", "time", "before", "after") if fields.has(name)]
    if len(given) > 1:
        raise FieldError(f"'{given[0]}' and '{given[1]}' are two positions: set only one of them")
    is_sought = fields.has("offset") or fields.has("time")
    return PageRequest(
        parse_partitions(fields.all("partition")),
        fields.integer("limit", DEFAULT_LIMIT, low=1, high=MAX_LIMIT),
        fields.choice("order", ORDERS, "oldest" if is_sought else "newest"),
        fields.optional_integer("offset", low=0),
        fields.time_ms("time") if fields.has("time") else None,
        _read_cursor(fields, "before"),
        _read_cursor(fields, "after"),
    )


def _read_cursor(fields: Fields, name: str) -> dict[int, int] | None:
    if not fields.has(name):
        return None
    text = fields.text(name)
    if not _CURSOR.fullmatch(text):
        raise FieldError(f"'{name}' must be offsets by partition such as 0:1200,1:980, not '{text}'")
    return {int(partition): int(offset) for partition, offset in (pair.split(":") for pair in text.split(","))}


def cursor_text(cursor: Cursor) -> str:
    return ",".join(f"{key.partition}:{offset}" for key, offset in cursor.items())
