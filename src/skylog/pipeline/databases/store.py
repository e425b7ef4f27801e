"""The interface of tables in databases, how to open them, and their errors.

A table has a second one, `TABLE_offsets`, with the end offset of each partition whose records are in it. Both change
together. So the tables alone determine what they cover, independent of the names of jobs and groups.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from skylog.errors import SkylogError
from skylog.model import TopicPartition

_TABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,54}")  # PostgreSQL truncates longer names with `_offsets`

Offsets = Mapping[TopicPartition, int]
Row = Sequence[Any]


class StoreError(SkylogError):
    """The database cannot be used. The message names it, without its password."""


class OffsetsMovedError(StoreError):
    """The offsets of the table are not those that the job expects: another job writes it. Nothing was written."""

    def __init__(self, where: str, partition: TopicPartition, expected: int | None, found: int | None) -> None:
        super().__init__(
            f"{where}: partition {partition} is counted up to offset {found or 0}, but this job expects offset "
            f"{expected or 0}: another job writes the same table; stop one of them, or use another table"
        )
        self.partition, self.expected, self.found = partition, expected, found


class Kind(StrEnum):
    """The type of a column."""

    TEXT = "text"
    INTEGER = "integer"
    REAL = "real"
    DECIMAL = "decimal"
    BOOLEAN = "boolean"
    DATE = "date"
    TIME = "time"
    BYTES = "bytes"


@dataclass(frozen=True)
class Precedence:
    """When a row may replace or delete the stored one: both have the same `origin`, or it is not lower in `order`."""

    origin: str
    order: tuple[str, ...]


@dataclass(frozen=True)
class RowLayout:
    """The columns of rows, in order. `key` identifies a row. Columns in `add` are added to those of the row with the
    same key, the others replace them. None and NaN add nothing. Without `precedence`, a row always replaces the stored
    one."""

    columns: Mapping[str, Kind]
    key: tuple[str, ...]
    add: tuple[str, ...] = ()
    precedence: Precedence | None = None

    def __post_init__(self) -> None:
        compared = () if self.precedence is None else (self.precedence.origin, *self.precedence.order)
        for name in (*self.key, *self.add, *compared):
            if name not in self.columns:
                raise StoreError(f"the result has no column '{name}'; it has {', '.join(self.columns)}")
        for name in self.columns:
            if '"' in name or "\0" in name or "." in name or name.startswith(("$", "_id")):
                raise StoreError(f"invalid column name '{name}': use letters, digits and _")
        for name in self.add:
            if self.columns[name] not in (Kind.INTEGER, Kind.REAL, Kind.DECIMAL):
                raise StoreError(f"column '{name}' is {self.columns[name]}, so its values cannot be added")

    @property
    def replaced(self) -> tuple[str, ...]:
        return tuple(name for name in self.columns if name not in self.key and name not in self.add)

    def summable(self, row: Row) -> Row:
        """Return the row with 0 for None and NaN in the columns that are added, which would erase the sum."""
        return [
            0 if name in self.add and (value is None or value != value) else value
            for name, value in zip(self.columns, row, strict=True)
        ]


class Store(Protocol):
    """A table and its offsets. Every call may raise StoreError."""

    def offsets(self) -> dict[TopicPartition, int]:
        """Return the end offset of each partition."""
        ...

    def apply(
        self, layout: RowLayout, rows: Sequence[Row], before: Offsets, after: Offsets, deleted: Sequence[Row] = ()
    ) -> None:
        """Add or replace rows, delete others, and update offsets: all or nothing, durably.

        Creates the table and missing columns. `deleted` are rows of the same layout, of which only the key and the
        columns of the precedence matter. All rows must have different keys. Raises OffsetsMovedError unless the stored
        offsets of the changed partitions are those in `before`, or absent in both.
        """
        ...

    def has_rows(self) -> bool: ...

    def close(self) -> None: ...


def open_store(url: str, table: str) -> Store:
    """Open a table in the database at `url`. Connects on first use."""
    match urlsplit(url).scheme:
        case "sqlite":
            from skylog.pipeline.databases.sqlite import SqliteStore

            return SqliteStore(url, table)
        case "postgresql" | "postgres":
            from skylog.pipeline.databases.postgres import PostgresStore

            return PostgresStore(url, table)
        case "mongodb" | "mongodb+srv":
            from skylog.pipeline.databases.mongo import MongoStore

            return MongoStore(url, table)
    raise StoreError(
        f"'{redacted_url(url)}' is not a supported database: use sqlite:///path/to/file, postgresql://host/database or "
        "mongodb://host/database"
    )


def check_table(name: str) -> str:
    """Return the name. Raises StoreError if it is not a valid table name in all databases."""
    if not _TABLE.fullmatch(name):
        raise StoreError(f"invalid table name '{name}': use up to 55 letters, digits and _, and no digit first")
    return name


def redacted_url(url: str) -> str:
    """Return the URL without user, password and options, for messages and logs."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts.scheme else url


def changed_partitions(before: Offsets, after: Offsets) -> list[TopicPartition]:
    """Return the partitions whose offsets change."""
    return [key for key, offset in after.items() if before.get(key) != offset]


def check_unmoved(where: str, stored: Offsets, before: Offsets, after: Offsets) -> None:
    for key in changed_partitions(before, after):
        if stored.get(key) != before.get(key):
            raise OffsetsMovedError(where, key, before.get(key), stored.get(key))


def check_has_offsets(where: str, stored: Offsets, *, has_rows: bool) -> None:
    """Raise StoreError for a table with rows but no offsets, because it is unknown what its rows cover."""
    if has_rows and not stored:
        raise StoreError(f"{where}: the table has rows but no offsets, so it is unknown what they count; use another")
