"""A captured table: its topic, and how its rows are encoded."""

from __future__ import annotations

from collections.abc import Sequence

from skylog.capture.pgoutput import Column, Relation
from skylog.capture.rows import RowEncoder
from skylog.errors import SkylogError


class CaptureError(SkylogError):
    """A reason why a capture cannot go on that somebody has to remove. The message names the fix."""


class Table:
    """A table as its rows are at a moment. Another change of the table makes another one."""

    __slots__ = ("key", "name", "row", "rows", "schema", "table", "topic")

    def __init__(self, prefix: str, schema: str, table: str, columns: Sequence[Column], key: Sequence[str]) -> None:
        self.schema, self.table = schema, table
        self.name = f"{schema}.{table}"
        self.topic = topic_of(prefix, self.name)
        self.rows = RowEncoder(columns, key)
        self.row, self.key = self.rows.row, self.rows.key


def topic_of(prefix: str, name: str) -> str:
    return f"{prefix}.{name}"


def no_key(name: str) -> CaptureError:
    return CaptureError(
        f"the table {name} has no primary key, so its rows have no key in the log: "
        f"ALTER TABLE {name} ADD PRIMARY KEY (…), or leave it out of --tables"
    )


def key_of(relation: Relation, primary_key: Sequence[str]) -> list[str]:
    """Return the columns of the key of a table: those that the stream names, unless it names them all (FULL).

    Raises CaptureError if there is none.
    """
    names = [column.name for column in relation.columns]
    if relation.identity == "d":
        found = [column.name for column in relation.columns if column.is_key]
    else:
        found = [name for name in primary_key if name in names]
    if not found:
        raise no_key(f"{relation.schema}.{relation.table}")
    return found
