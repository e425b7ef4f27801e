"""A captured table: its topic, and how its rows are encoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from skylog.capture.pgoutput import Column, Relation
from skylog.capture.rows import JsonRows, Rows
from skylog.errors import SkylogError


class CaptureError(SkylogError):
    """A reason why a capture cannot go on that somebody has to remove. The message names the fix."""


class TableChangedError(SkylogError):
    """A table is not the one that the capture began with. The capture begins again, and reads `table` anew."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(f"{reason}: the table {table} is read anew")
        self.table = table


class Table:
    """A table as its rows are at a moment. Another change of the table makes another one."""

    __slots__ = ("key", "name", "row", "rows", "schema", "table", "topic", "value_prefix")

    def __init__(self, name: str, topic: str, rows: Rows) -> None:
        self.schema, _, self.table = name.partition(".")
        self.name, self.topic, self.rows = name, topic, rows
        self.row, self.key, self.value_prefix = rows.row, rows.key, rows.value_prefix


RowsOf = Callable[[str, Sequence[Column], Sequence[str]], Rows]
"""Makes the rows of a table from its topic, its columns, and the names of those of its key."""


def json_rows(_topic: str, columns: Sequence[Column], key: Sequence[str]) -> Rows:
    return JsonRows(columns, key)


class Tables:
    """Makes the tables of a capture, in its format."""

    def __init__(self, prefix: str, rows_of: RowsOf = json_rows) -> None:
        self._prefix = prefix
        self._rows_of = rows_of

    def of(self, name: str, columns: Sequence[Column], key: Sequence[str]) -> Table:
        topic = topic_of(self._prefix, name)
        return Table(name, topic, self._rows_of(topic, columns, key))


def topic_of(prefix: str, name: str) -> str:
    return f"{prefix}.{name}"


def no_key(name: str) -> CaptureError:
    return CaptureError(
        f"the table {name} has no primary key, so its rows have no key in the log: "
        f"ALTER TABLE {name} ADD PRIMARY KEY (…), or leave it out of --tables"
    )


def check_key(name: str, relation: Relation, key: Mapping[str, int]) -> None:
    """Raise TableChangedError if `key`, the types of columns, is not the primary key of a table in the stream.

    With the replica identity FULL the stream does not say what the key is; then its columns have to be there.
    """
    is_full = relation.identity != "d"
    found = {column.name: column.type_oid for column in relation.columns if is_full or column.is_key}
    if not (found.items() >= key.items() if is_full else found == key):
        raise TableChangedError(name, "its primary key has changed")
