"""Visits in PostgreSQL. psycopg is loaded when it is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from skylog.model import TopicPartition
from skylog.spark.jobs.visits.sql import SqlTables
from skylog.spark.jobs.visits.stores import Count, Offsets, StoreError, shown_url

_CONNECT_S: Final = 10
# A job that is stopped in the middle, and not killed, must not keep the next one waiting for ever.
_PATIENCE: Final = "SET LOCAL lock_timeout = '30s'; SET LOCAL idle_in_transaction_session_timeout = '20s'"


class PostgresStore:
    """`postgresql://user:password@host/database`, with libpq's options. A connection for each transaction."""

    def __init__(self, url: str, table: str) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise StoreError(f"PostgreSQL wants psycopg ({error}): pip install 'skylog[postgres]'") from error
        self._psycopg = psycopg
        self._url = url
        self._where = f"table {table} in {shown_url(url)}"
        self._tables = SqlTables(self._where, table, "%s")

    def offsets(self) -> dict[TopicPartition, int]:
        with self._transaction() as cursor:
            # Of two jobs that start at once the second finds the tables made; and whoever may not make tables can work
            # with those that somebody else has made.
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (self._tables.offsets,))
            cursor.execute("SELECT to_regclass(%s) IS NULL", (self._tables.offsets,))
            if cursor.fetchall() == [(True,)]:
                self._tables.create(cursor)
            return self._tables.read_offsets(cursor)

    def apply(self, counts: Sequence[Count], before: Offsets, after: Offsets) -> None:
        with self._transaction() as cursor:
            cursor.execute(f"LOCK TABLE {self._tables.offsets} IN SHARE ROW EXCLUSIVE MODE")  # readers go on reading
            self._tables.apply(cursor, counts, before, after)

    def close(self) -> None:
        """Nothing is kept open: a server that restarts between two increments is no surprise."""

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        psycopg = self._psycopg
        try:
            with (
                psycopg.connect(self._url, connect_timeout=_CONNECT_S) as connection,
                connection.transaction(),
                connection.cursor() as cursor,
            ):
                cursor.execute(_PATIENCE)
                yield cursor
        except psycopg.Error as error:
            raise StoreError(f"{self._where}: {' '.join(str(error).split())}") from error
