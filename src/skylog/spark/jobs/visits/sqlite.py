"""Visits in a SQLite file, the default: nothing to install and nothing to run."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final
from urllib.parse import unquote, urlsplit

from skylog.model import TopicPartition
from skylog.spark.jobs.visits.sql import SqlTables
from skylog.spark.jobs.visits.stores import Count, Offsets, StoreError

_PATIENCE_S: Final = 30.0


class SqliteStore:
    """`sqlite:///relative/path` or `sqlite:////absolute/path`. Others may read while a job writes."""

    def __init__(self, url: str, table: str) -> None:
        parts = urlsplit(url)
        self._path = unquote(parts.path[1:])
        if parts.netloc or not self._path:
            raise StoreError(f"'{url}' names no file: give sqlite:///relative/path or sqlite:////absolute/path")
        self._where = f"table {table} in {self._path}"
        self._tables = SqlTables(self._where, table, "?")

    def offsets(self) -> dict[TopicPartition, int]:
        with self._transaction() as cursor:
            self._tables.create(cursor)
            return self._tables.read_offsets(cursor)

    def apply(self, counts: Sequence[Count], before: Offsets, after: Offsets) -> None:
        with self._transaction() as cursor:
            self._tables.apply(cursor, counts, before, after)

    def close(self) -> None:
        """Nothing is kept open: a file that is replaced between two increments is no surprise."""

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        try:
            with closing(sqlite3.connect(self._path, timeout=_PATIENCE_S, isolation_level=None)) as connection:
                cursor = connection.cursor()
                _use_write_ahead_log(cursor)  # readers and the job don't wait for each other
                cursor.execute("BEGIN IMMEDIATE")  # the only writer from here on
                yield cursor
                cursor.execute("COMMIT")  # what does not come here is undone when the connection is closed
        except sqlite3.Error as error:
            raise StoreError(f"{self._where}: {error}") from error


def _use_write_ahead_log(cursor: sqlite3.Cursor) -> None:
    """SQLite does not wait here if another connection is just opening or closing the log, so try again."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(0.01)
