"""Tables in PostgreSQL. Imports psycopg on first use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from skylog.model import TopicPartition
from skylog.pipeline.databases.sql import DatabaseCursor, Dialect, SqlTables
from skylog.pipeline.databases.store import Kind, Offsets, Row, RowLayout, StoreError, redacted_url

_CONNECT_S: Final = 10
# A job that is suspended in a transaction must not block the next one forever.
_TIMEOUTS: Final = "SET LOCAL lock_timeout = '30s'; SET LOCAL idle_in_transaction_session_timeout = '20s'"

_TYPES: Final = {
    Kind.TEXT: "TEXT",
    Kind.INTEGER: "BIGINT",
    Kind.REAL: "DOUBLE PRECISION",
    Kind.DECIMAL: "NUMERIC",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.DATE: "DATE",
    Kind.TIME: "TIMESTAMPTZ",
    Kind.BYTES: "BYTEA",
}


def _columns(cursor: DatabaseCursor, table: str) -> set[str]:
    cursor.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
        (f'"{table}"',),
    )
    return {name.lower() for (name,) in cursor.fetchall()}


def _value(value: Any) -> Any:
    """Return a value that PostgreSQL can store: a text without NUL, which JSON and the other databases allow."""
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(value, str) else value


_DIALECT: Final = Dialect("%s", _TYPES, _columns, _value)


class PostgresStore:
    """`postgresql://user:password@host/database`, with libpq's options. Opens a connection per transaction."""

    def __init__(self, url: str, table: str) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise StoreError(f"PostgreSQL requires psycopg ({error}): pip install 'skylog[postgres]'") from error
        self._psycopg = psycopg
        self._url = url
        self._where = f"table {table} in {redacted_url(url)}"
        self._tables = SqlTables(self._where, table, _DIALECT)

    def offsets(self) -> dict[TopicPartition, int]:
        with self._transaction() as cursor:
            # The lock is for two jobs that start at once: the second finds the tables. The check before CREATE is for
            # users who may not create tables, but can use existing ones.
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (self._tables.offsets,))
            cursor.execute("SELECT to_regclass(%s) IS NULL", (self._tables.offsets,))
            if cursor.fetchall() == [(True,)]:
                self._tables.create_offsets(cursor)
            return self._tables.read_offsets(cursor)

    def apply(
        self, layout: RowLayout, rows: Sequence[Row], before: Offsets, after: Offsets, deleted: Sequence[Row] = ()
    ) -> None:
        with self._transaction() as cursor:
            cursor.execute(f"LOCK TABLE {self._tables.offsets} IN SHARE ROW EXCLUSIVE MODE")  # does not block readers
            self._tables.apply(cursor, layout, rows, before, after, deleted)

    def has_rows(self) -> bool:
        with self._transaction() as cursor:
            return self._tables.has_rows(cursor)

    def close(self) -> None:
        """Do nothing. No connection stays open, so the server may restart between two increments."""

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        psycopg = self._psycopg
        try:
            with (
                psycopg.connect(self._url, connect_timeout=_CONNECT_S) as connection,
                connection.transaction(),
                connection.cursor() as cursor,
            ):
                cursor.execute(_TIMEOUTS)
                yield cursor
        except psycopg.Error as error:
            raise StoreError(f"{self._where}: {' '.join(str(error).split())}") from error
