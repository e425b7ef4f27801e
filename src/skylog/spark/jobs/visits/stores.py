"""Where visits are kept: what a database must offer, which ones there are, and what can be wrong with them.

A table of visits has its offsets beside it, `TABLE_offsets`: for each partition, up to where the table counts it. Both
change together. So a table tells by itself what is in it; no name of a job or group has a part in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from skylog.errors import SkylogError
from skylog.model import TopicPartition

DEFAULT_DATABASE: Final = "sqlite:///visits.db"
DEFAULT_TABLE: Final = "visits"

_TABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,54}")  # with `_offsets`, what PostgreSQL does not cut off

Offsets = Mapping[TopicPartition, int]


class StoreError(SkylogError):
    """A database that cannot be used as it is; the message names it, without its password."""


class OffsetsMovedError(StoreError):
    """A table that counts further, or less far, than the job thought: another job works on it. Nothing was written."""

    def __init__(self, where: str, partition: TopicPartition, thought: int | None, found: int | None) -> None:
        super().__init__(
            f"{where}: partition {partition} is counted up to offset {found or 0} there, but this job goes on from "
            f"offset {thought or 0}: another job counts into the same table; stop one of them, or name another table"
        )
        self.partition, self.thought, self.found = partition, thought, found


class Count(NamedTuple):
    """Visits to add to those of an organisation on a day."""

    organisation: str
    day: date
    visits: int


class VisitStore(Protocol):
    """A table of visits and its offsets. Every call may raise StoreError."""

    def offsets(self) -> dict[TopicPartition, int]:
        """Up to where each partition is counted; makes the table if there is none."""
        ...

    def apply(self, counts: Sequence[Count], before: Offsets, after: Offsets) -> None:
        """Add counts and move offsets, both or neither, durably.

        Raises OffsetsMovedError unless the partitions that move stand where `before` has them, or nowhere if it hasn't.
        """
        ...

    def close(self) -> None: ...


def open_store(url: str, table: str = DEFAULT_TABLE) -> VisitStore:
    """The table of that name in the database at `url`. Nothing is connected to before it is needed."""
    match urlsplit(url).scheme:
        case "sqlite":
            from skylog.spark.jobs.visits.sqlite import SqliteStore

            return SqliteStore(url, table)
        case "postgresql" | "postgres":
            from skylog.spark.jobs.visits.postgres import PostgresStore

            return PostgresStore(url, table)
        case "mongodb" | "mongodb+srv":
            from skylog.spark.jobs.visits.mongo import MongoStore

            return MongoStore(url, table)
    raise StoreError(
        f"'{shown_url(url)}' is no database: give sqlite:///path/to/file, postgresql://host/database or "
        "mongodb://host/database"
    )


def check_table(name: str) -> str:
    """The name, if it may be that of a table in all databases."""
    if not _TABLE.fullmatch(name):
        raise StoreError(f"'{name}' cannot be a table: give up to 55 letters, digits and _, not beginning with a digit")
    return name


def shown_url(url: str) -> str:
    """For people and logs: without user, password and options."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts.scheme else url


def moves(before: Offsets, after: Offsets) -> list[TopicPartition]:
    """The partitions whose offsets change."""
    return [key for key, offset in after.items() if before.get(key) != offset]


def check_unmoved(where: str, stored: Offsets, before: Offsets, after: Offsets) -> None:
    for key in moves(before, after):
        if stored.get(key) != before.get(key):
            raise OffsetsMovedError(where, key, before.get(key), stored.get(key))


def check_known(where: str, stored: Offsets, *, has_counts: bool) -> None:
    """Refuse a table that counts nobody knows what, such as one that was there for something else."""
    if has_counts and not stored:
        raise StoreError(f"{where}: the table has rows but no offsets, so nobody knows what they count; name another")
