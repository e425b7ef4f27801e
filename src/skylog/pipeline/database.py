"""Tables in databases as sinks of jobs: the few rows of a result, upserted by the driver."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from skylog.errors import ConfigError
from skylog.pipeline.databases.store import Kind, OffsetsMovedError, RowLayout, StoreError, open_store, redacted_url
from skylog.pipeline.increments import Offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Database", "OffsetsMovedError", "StoreError"]

UNPARSED: Final = "_unparsed"
_KINDS: Final = {
    "string": Kind.TEXT,
    "tinyint": Kind.INTEGER,
    "smallint": Kind.INTEGER,
    "int": Kind.INTEGER,
    "bigint": Kind.INTEGER,
    "float": Kind.REAL,
    "double": Kind.REAL,
    "boolean": Kind.BOOLEAN,
    "date": Kind.DATE,
    "timestamp": Kind.TIME,
    "binary": Kind.BYTES,
}


@dataclass(frozen=True)
class Database:
    """A table in SQLite, PostgreSQL or MongoDB. Rows are upserted by `key`.

        Database("sqlite:///visits.db", "visits", key=("organisation", "day"), add=("visits",))

    A row replaces the one with the same key, except that columns in `add` are added to it. Rows of one batch must have
    different keys. The table `TABLE_offsets` has the offsets. The result goes through the driver, so it should be
    small: aggregate in the function, or limit a batch with `max_offsets`.
    """

    url: str
    table: str
    key: tuple[str, ...]
    add: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("key", "add"):
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
        if not self.key:
            raise ConfigError(f"table {self.table}: a database needs the columns of a key")

    def __repr__(self) -> str:
        return f"Database({self.target})"

    @property
    def target(self) -> str:
        return f"{redacted_url(self.url)} table {self.table}"

    def open(self) -> OpenDatabase:
        return OpenDatabase(self)

    def for_unparsed(self) -> Database:
        """Return the table of records that do not parse: the same name with `_unparsed`."""
        return Database(self.url, self.table + UNPARSED, ("topic", "partition", "offset"))


class OpenDatabase:
    """A table during a run. See `skylog.pipeline.sink.OpenSink`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._store = open_store(database.url, database.table)

    def offsets(self, topics: Collection[str]) -> Offsets:
        """Return the end offsets of these topics. The table may have rows of others."""
        return {key: offset for key, offset in self._store.offsets().items() if key.topic in topics}

    def write(
        self, rows: DataFrame, before: Offsets, after: Offsets, before_commit: Callable[[], None] = lambda: None
    ) -> None:
        plain = plain_rows(rows)
        layout = RowLayout(kinds_of(plain), self._database.key, self._database.add)
        self.upsert(layout, self._collected(plain), before, after, before_commit)

    def upsert(
        self,
        layout: RowLayout,
        rows: Iterable[tuple[Any, ...]],
        before: Offsets,
        after: Offsets,
        before_commit: Callable[[], None],
        deleted: Iterable[tuple[Any, ...]] = (),
    ) -> None:
        """Do the same with rows that Spark has computed, and delete others."""
        found, gone = ([tuple(map(_value, row)) for row in each] for each in (rows, deleted))
        self._check_keys(layout, found + gone)
        before_commit()
        self._store.apply(layout, found, before, after, gone)

    def _collected(self, rows: DataFrame) -> list[tuple[Any, ...]]:
        try:
            return [tuple(row) for row in rows.collect()]
        except (OverflowError, ValueError) as error:
            raise StoreError(
                f"{self._database.target}: a row has a time or date that cannot be stored ({error}); leave it out, or "
                "cast it to a text"
            ) from error

    def _check_keys(self, layout: RowLayout, rows: list[tuple[Any, ...]]) -> None:
        places = [list(layout.columns).index(name) for name in layout.key]
        keys = [tuple(row[place] for place in places) for row in rows]
        if any(None in key for key in keys):
            raise StoreError(f"{self._database.target}: a row has no {' or no '.join(layout.key)}, which are the key")
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise StoreError(
                f"{self._database.target}: several rows of one batch have the key {', '.join(map(str, twice))}; return "
                "one row for each key"
            )

    def has_rows(self) -> bool:
        return self._store.has_rows()

    def close(self) -> None:
        self._store.close()


def _value(value: Any) -> Any:
    """Return a time with its zone, because Spark returns local times without one, and bytes that can be in a set."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return bytes(value) if isinstance(value, bytearray) else value


def plain_rows(rows: DataFrame) -> DataFrame:
    """Return the rows with structs, maps and arrays as JSON text."""
    for name, kind in rows.dtypes:
        if kind.startswith(("struct", "map", "array")):
            rows = rows.withColumn(name, F.to_json(F.col(f"`{name}`")))
    return rows


def kinds_of(rows: DataFrame) -> dict[str, Kind]:
    """Return the type of each column. Raises StoreError for one that a database cannot store."""
    found = {}
    for name, kind in rows.dtypes:
        if kind not in _KINDS and not kind.startswith("decimal"):
            raise StoreError(f"column '{name}' is {kind}, which a database table cannot store; cast it")
        found[name] = _KINDS.get(kind, Kind.DECIMAL)
    return found
