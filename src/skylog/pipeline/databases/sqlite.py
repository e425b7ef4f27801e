"""Tables in a SQLite file, which needs no installation and no server."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from skylog.model import TopicPartition
from skylog.pipeline.databases.sql import DatabaseCursor, Dialect, SqlTables
from skylog.pipeline.databases.store import Kind, Offsets, Row, RowLayout, StoreError

_PATIENCE_S: Final = 30.0
_TYPES: Final = {
    Kind.TEXT: "TEXT",
    Kind.INTEGER: "BIGINT",
    Kind.REAL: "REAL",
    Kind.DECIMAL: "NUMERIC",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.DATE: "DATE",
    Kind.TIME: "TIMESTAMP",
    Kind.BYTES: "BLOB",
}


def _columns(cursor: DatabaseCursor, table: str) -> set[str]:
    cursor.execute("SELECT name FROM pragma_table_info(?)", (table,))
    return {name.lower() for (name,) in cursor.fetchall()}


def _value(value: Any) -> Any:
    """Return a value that SQLite can store: dates and times as ISO 8601 in UTC."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytearray):
        return bytes(value)
    return str(value) if isinstance(value, Decimal) else value


_DIALECT: Final = Dialect("?", _TYPES, _columns, _value)


class SqliteStore:
    """`sqlite:///relative/path` or `sqlite:////absolute/path`. Other processes can read while a job writes."""

    def __init__(self, url: str, table: str) -> None:
        parts = urlsplit(url)
        self._path = unquote(parts.path[1:])
        if parts.netloc or not self._path:
            raise StoreError(f"'{url}' has no file name: use sqlite:///relative/path or sqlite:////absolute/path")
        self._where = f"table {table} in {self._path}"
        self._tables = SqlTables(self._where, table, _DIALECT)

    def offsets(self) -> dict[TopicPartition, int]:
        with self._transaction() as cursor:
            self._tables.create_offsets(cursor)
            return self._tables.read_offsets(cursor)

    def apply(
        self, layout: RowLayout, rows: Sequence[Row], before: Offsets, after: Offsets, deleted: Sequence[Row] = ()
    ) -> None:
        with self._transaction() as cursor:
            self._tables.apply(cursor, layout, rows, before, after, deleted)

    def has_rows(self) -> bool:
        with self._transaction() as cursor:
            return self._tables.has_rows(cursor)

    def close(self) -> None:
        """Do nothing. The file does not stay open, so it may be replaced between two increments."""

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        try:
            with closing(sqlite3.connect(self._path, timeout=_PATIENCE_S, isolation_level=None)) as connection:
                cursor = connection.cursor()
                _use_write_ahead_log(cursor)  # readers and the job do not block each other
                cursor.execute("BEGIN IMMEDIATE")  # the only writer from here on
                yield cursor
                cursor.execute("COMMIT")  # otherwise closing the connection rolls back
        except sqlite3.Error as error:
            raise StoreError(f"{self._where}: {error}") from error


def _use_write_ahead_log(cursor: sqlite3.Cursor) -> None:
    """Enable the WAL. Retries, because SQLite does not wait here for a connection that opens or closes the log."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(0.01)
