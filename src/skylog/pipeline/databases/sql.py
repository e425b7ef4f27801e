"""The tables in SQLite and PostgreSQL, and the transaction that writes rows and updates offsets.

    visits(organisation text, day date, visits bigint, primary key (organisation, day))
    visits_offsets(topic text, partition integer, end_offset bigint, primary key (topic, partition))

The transaction first checks that the offsets are still those that the job started from. No other transaction may write
to the tables meanwhile; the module of each database ensures this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from skylog.model import TopicPartition
from skylog.pipeline.databases.store import (
    Kind,
    Offsets,
    Precedence,
    Row,
    RowLayout,
    changed_partitions,
    check_has_offsets,
    check_table,
    check_unmoved,
)


class DatabaseCursor(Protocol):
    """A cursor of sqlite3 or psycopg."""

    def execute(self, query: Any, params: Any = ..., /) -> Any: ...
    def executemany(self, query: Any, params: Any, /) -> Any: ...
    def fetchall(self) -> list[Any]: ...


@dataclass(frozen=True)
class Dialect:
    """What differs: the placeholder of a parameter, the types, the columns of a table (none if there is no table), and
    the form of a value."""

    mark: str
    types: Mapping[Kind, str]
    columns: Callable[[DatabaseCursor, str], set[str]]
    value: Callable[[Any], Any] = lambda value: value


class SqlTables:
    """The two tables. Methods run in the cursor's transaction."""

    def __init__(self, where: str, table: str, dialect: Dialect) -> None:
        self.name = check_table(table)
        self.rows = f'"{table}"'
        self.offsets = f'"{table}_offsets"'
        self._where = where
        self._dialect = dialect

    def create_offsets(self, cursor: DatabaseCursor) -> None:
        cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {self.offsets} (topic TEXT NOT NULL, partition INTEGER NOT NULL, "
            "end_offset BIGINT NOT NULL, PRIMARY KEY (topic, partition))"
        )

    def read_offsets(self, cursor: DatabaseCursor) -> dict[TopicPartition, int]:
        stored = self._stored(cursor)
        check_has_offsets(self._where, stored, has_rows=not stored and self.has_rows(cursor))
        return stored

    def has_rows(self, cursor: DatabaseCursor) -> bool:
        if not self._dialect.columns(cursor, self.name):
            return False
        cursor.execute(f"SELECT 1 FROM {self.rows} LIMIT 1")
        return bool(cursor.fetchall())

    def apply(
        self,
        cursor: DatabaseCursor,
        layout: RowLayout,
        rows: Sequence[Row],
        before: Offsets,
        after: Offsets,
        deleted: Sequence[Row],
    ) -> None:
        check_unmoved(self._where, self._stored(cursor), before, after)
        self._shape(cursor, layout)
        marks = ", ".join([self._dialect.mark] * 3)
        cursor.executemany(
            f"INSERT INTO {self.offsets} (topic, partition, end_offset) VALUES ({marks}) "
            "ON CONFLICT (topic, partition) DO UPDATE SET end_offset = excluded.end_offset",
            [(*key, after[key]) for key in changed_partitions(before, after)],
        )
        cursor.executemany(
            self._upsert(layout), [tuple(map(self._dialect.value, layout.summable(row))) for row in rows]
        )
        statement, names = self._delete(layout)
        places = [list(layout.columns).index(name) for name in names]
        cursor.executemany(statement, [tuple(self._dialect.value(row[place]) for place in places) for row in deleted])

    def _shape(self, cursor: DatabaseCursor, layout: RowLayout) -> None:
        """Create the table, or add the columns that it does not have."""
        types = self._dialect.types
        known = self._dialect.columns(cursor, self.name)
        if not known:
            columns = ", ".join(
                f'"{name}" {types[kind]}{" NOT NULL" if name in layout.key else ""}'
                for name, kind in layout.columns.items()
            )
            cursor.execute(f"CREATE TABLE {self.rows} ({columns}, PRIMARY KEY ({_names(layout.key)}))")
            return
        for name, kind in layout.columns.items():
            if name.lower() not in known:
                cursor.execute(f'ALTER TABLE {self.rows} ADD COLUMN "{name}" {types[kind]}')

    def _upsert(self, layout: RowLayout) -> str:
        marks = ", ".join([self._dialect.mark] * len(layout.columns))
        changes = [f'"{name}" = excluded."{name}"' for name in layout.replaced]
        changes += [f'"{name}" = COALESCE({self.rows}."{name}", 0) + excluded."{name}"' for name in layout.add]
        conflict = f"DO UPDATE SET {', '.join(changes)}" if changes else "DO NOTHING"
        if changes and layout.precedence is not None:
            conflict += " WHERE " + self._precedes(layout.precedence, lambda name: f'excluded."{name}"')
        return (
            f"INSERT INTO {self.rows} ({_names(layout.columns)}) VALUES ({marks}) "
            f"ON CONFLICT ({_names(layout.key)}) {conflict}"
        )

    def _delete(self, layout: RowLayout) -> tuple[str, list[str]]:
        """Return the statement that deletes a row, and the columns of its parameters."""
        mark = self._dialect.mark
        condition = " AND ".join(f'"{name}" = {mark}' for name in layout.key)
        if (precedence := layout.precedence) is None:
            return f"DELETE FROM {self.rows} WHERE {condition}", [*layout.key]
        condition += f" AND ({self._precedes(precedence, lambda _: mark)})"
        return f"DELETE FROM {self.rows} WHERE {condition}", [*layout.key, precedence.origin, *precedence.order]

    def _precedes(self, precedence: Precedence, new: Callable[[str], str]) -> str:
        """Return the condition under which a row replaces the stored one. `new` is the expression for its column."""
        order = ", ".join(map(new, precedence.order))
        stored = ", ".join(f'{self.rows}."{name}"' for name in precedence.order)
        return f'{self.rows}."{precedence.origin}" = {new(precedence.origin)} OR ({order}) >= ({stored})'

    def _stored(self, cursor: DatabaseCursor) -> dict[TopicPartition, int]:
        cursor.execute(f"SELECT topic, partition, end_offset FROM {self.offsets}")
        return {TopicPartition(topic, partition): offset for topic, partition, offset in cursor.fetchall()}


def _names(names: Any) -> str:
    return ", ".join(f'"{name}"' for name in names)
