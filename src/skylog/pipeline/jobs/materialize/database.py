"""The job with a table of a database: the last change of each key, upserted or deleted together with the offsets.

The table has the columns of the Delta table, and the primary key `_key`. It has no earlier states.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from skylog.errors import ConfigError
from skylog.pipeline.database import Database, OpenDatabase, StoreError, kinds_of, plain_rows
from skylog.pipeline.databases.store import Precedence, RowLayout, check_table
from skylog.pipeline.increments import Offsets
from skylog.pipeline.job_definition import Job
from skylog.pipeline.jobs.materialize.changes import DELETED, KEY, Envelope, changes, last_changes
from skylog.pipeline.one_task import has_one_partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# If a key is in several partitions, the partition with the newer last record wins, as in `last_changes`.
_PRECEDENCE: Final = Precedence("_partition", ("_timestamp", "_partition"))


@dataclass(frozen=True, repr=False)
class ChangelogDatabase(Database):
    """A table in PostgreSQL or SQLite. It takes changes."""

    key: tuple[str, ...] = (KEY,)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_table(self.table)
        if urlsplit(self.url).scheme.startswith("mongodb"):
            raise ConfigError(f"{self.target}: rows of MongoDB cannot be deleted; use PostgreSQL or SQLite")

    def open(self) -> OpenChangelogDatabase:
        return OpenChangelogDatabase(self)


class OpenChangelogDatabase(OpenDatabase):
    """The table during a run. See `skylog.pipeline.sink.OpenSink`."""

    def offsets(self, topics: Collection[str]) -> Offsets:
        offsets = self._store.offsets()
        if others := sorted({key.topic for key in offsets}.difference(topics)):
            raise StoreError(f"{self._database.target} is the table of topic '{others[0]}'; use another table")
        return offsets

    def write(
        self, rows: DataFrame, before: Offsets, after: Offsets, before_commit: Callable[[], None] = lambda: None
    ) -> None:
        last = plain_rows(last_changes(rows, is_one_task=has_one_partition(rows)))
        columns = last.drop(DELETED)
        layout = RowLayout(kinds_of(columns), self._database.key, precedence=_PRECEDENCE)
        found = last.collect()  # once: after a compaction in between, a second read would return fewer records
        current, gone = (
            [tuple(row[name] for name in columns.columns) for row in found if row[DELETED] is is_deleted]
            for is_deleted in (False, True)
        )
        self.upsert(layout, current, before, after, before_commit, gone)


def materialize_into_database(
    topic: str, database: str, table: str, schema: str, *, envelope: Envelope = Envelope.PLAIN
) -> Job:
    """Return the job that keeps a table of PostgreSQL or SQLite up to date with a changelog.

    `database` is a URL, and `schema` the DDL of the rows. The changed rows of an increment go through the driver: limit
    it with `max_offsets`.
    """

    def materialize(records: DataFrame) -> DataFrame:
        return changes(records, schema, envelope)

    return Job(materialize, [topic], ChangelogDatabase(database, table), schema=None)
