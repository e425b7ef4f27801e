"""What SQLite and PostgreSQL have in common: the tables, and a transaction that adds counts and moves offsets.

    visits(organisation text, day date, visits bigint, primary key (organisation, day))
    visits_offsets(topic text, partition integer, end_offset bigint, primary key (topic, partition))

The transaction looks first whether the offsets are still those that the job started from. It must be the only one that
writes to the tables meanwhile: the databases' modules see to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from skylog.model import TopicPartition
from skylog.spark.jobs.visits.stores import Count, Offsets, check_known, check_table, check_unmoved, moves


class Cursor(Protocol):
    """Of the database's module: sqlite3's or psycopg's."""

    def execute(self, query: Any, params: Any = ..., /) -> Any: ...
    def executemany(self, query: Any, params: Any, /) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class SqlTables:
    """The two tables. Methods work in the transaction that the cursor is in; `mark` stands for a parameter."""

    def __init__(self, where: str, table: str, mark: str) -> None:
        self.visits = f'"{check_table(table)}"'
        self.offsets = f'"{table}_offsets"'
        self._where = where
        self._mark = mark

    def create(self, cursor: Cursor) -> None:
        cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {self.visits} (organisation TEXT NOT NULL, day DATE NOT NULL, "
            "visits BIGINT NOT NULL, PRIMARY KEY (organisation, day))"
        )
        cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {self.offsets} (topic TEXT NOT NULL, partition INTEGER NOT NULL, "
            "end_offset BIGINT NOT NULL, PRIMARY KEY (topic, partition))"
        )

    def read_offsets(self, cursor: Cursor) -> dict[TopicPartition, int]:
        stored = self._stored(cursor)
        cursor.execute(f"SELECT 1 FROM {self.visits} LIMIT 1")
        check_known(self._where, stored, has_counts=bool(cursor.fetchall()))
        return stored

    def apply(self, cursor: Cursor, counts: Sequence[Count], before: Offsets, after: Offsets) -> None:
        check_unmoved(self._where, self._stored(cursor), before, after)
        values = f"VALUES ({self._mark}, {self._mark}, {self._mark})"
        cursor.executemany(
            f"INSERT INTO {self.offsets} (topic, partition, end_offset) {values} "
            "ON CONFLICT (topic, partition) DO UPDATE SET end_offset = excluded.end_offset",
            [(*key, after[key]) for key in moves(before, after)],
        )
        cursor.executemany(
            f"INSERT INTO {self.visits} (organisation, day, visits) {values} "
            f"ON CONFLICT (organisation, day) DO UPDATE SET visits = {self.visits}.visits + excluded.visits",
            [(count.organisation, count.day.isoformat(), count.visits) for count in counts],
        )

    def _stored(self, cursor: Cursor) -> dict[TopicPartition, int]:
        cursor.execute(f"SELECT topic, partition, end_offset FROM {self.offsets}")
        return {TopicPartition(topic, partition): offset for topic, partition, offset in cursor.fetchall()}
