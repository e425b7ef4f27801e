"""The job: applies each increment of the changelog to the table. Only files with changed rows are rewritten.

All changes are kept in a second table, `TABLE__changes`, for earlier states. It has its own offsets and is written
first. After a crash in between, it skips the changes that it has.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from skylog.pipeline.cluster import Cluster
from skylog.pipeline.delta.changed_keys import ChangedKeys
from skylog.pipeline.delta.errors import TableError
from skylog.pipeline.delta.reading import read_files
from skylog.pipeline.delta.upserts import touched_files
from skylog.pipeline.increments import Increments, Offsets
from skylog.pipeline.job_definition import Job
from skylog.pipeline.jobs.materialize.changes import KEY, Envelope, as_changes, changes, materialize
from skylog.pipeline.one_task import are_few, has_one_partition
from skylog.pipeline.table import Table, retried

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

CHANGES: Final = "__changes"
GAP_END: Final = "_gap_end"
"""A row of the changes with this column is a gap: the state of the table is unknown from `_offset` to this offset."""


@dataclass(frozen=True)
class MaterializedTable:
    """The sink of the job: takes changes, and keeps the table at `path` up to date.

    `end_offsets` returns the current ends of the logs. Without `history`, changes are not kept.
    """

    path: str | os.PathLike[str]
    end_offsets: Callable[[], Offsets]
    history: bool = True

    @property
    def target(self) -> str:
        return self.table.target

    @property
    def table(self) -> Table:
        return Table(self.path, key=(KEY,))

    def open(self) -> OpenMaterializedTable:
        return OpenMaterializedTable(self)

    def for_unparsed(self) -> Table:
        return self.table.for_unparsed()


class OpenMaterializedTable:
    """The table during a run. See `skylog.pipeline.sink.OpenSink`."""

    def __init__(self, settings: MaterializedTable) -> None:
        self._table = settings.table.open()
        self._changes = changes_of(settings.table).open()
        self._end_offsets = settings.end_offsets
        self._has_history = settings.history
        self._where = settings.target
        self._columns: StructType | None = None

    def offsets(self, topics: Collection[str]) -> Offsets:
        offsets = self._table.offsets(topics)
        kept = self._changes.offsets(topics)
        log = self._table.log
        if log is None or (not offsets and log.fence is None and not log.files()):
            return {}  # at most created by a first increment that has not ended
        if not offsets:
            raise TableError(f"{self._where} is not the table of topic '{', '.join(topics)}'; use another table")
        if self._has_history != bool(kept):
            how = "--history" if kept else "--no-history"
            raise TableError(f"{self._where} was created with {how}; use the same option, or another table")
        return offsets

    def write(
        self, rows: DataFrame, before: Offsets, after: Offsets, before_commit: Callable[[], None] = lambda: None
    ) -> None:
        # Read only once: if compaction ran in between, a second read would return fewer records.
        changed = rows.localCheckpoint()
        columns = self._columns = self._columns or materialize(changed).schema
        self._table.prepare(columns, before, after)
        before_commit()
        if self._has_history:
            self._keep(changed, before, after)
        retried(lambda: self._merge(changed, columns, before, after))

    def has_rows(self) -> bool:
        return self._table.has_rows()

    def close(self) -> None:
        """Do nothing. A table is open only while it is read or written."""

    def _merge(self, changed: DataFrame, columns: StructType, before: Offsets, after: Offsets) -> None:
        log = self._table.prepare(columns, before, after)
        touched = touched_files(log, ChangedKeys(changed.where(F.col(KEY).isNotNull()), (KEY,)))
        rows = as_changes(read_files(changed.sparkSession, log, touched)) if touched else None
        merged = changed if rows is None else rows.unionByName(changed, allowMissingColumns=True)
        is_one_task = are_few(touched) and has_one_partition(changed)
        files = self._table.write_rows(materialize(merged, is_one_task=is_one_task))
        log.commit(files, touched, before=before, after=after, is_fenced=True)

    def _keep(self, changed: DataFrame, before: Offsets, after: Offsets) -> None:
        """Add the changes, and the gaps between them, to the table of changes."""
        log = self._changes.log
        known = {} if log is None else log.offsets({key.topic for key in after})
        end = {key: max(end, known.get(key, end)) for key, end in after.items()}
        late = [f"_partition = {key.partition} AND _offset < {end}" for key, end in known.items()]
        new = changed.where(f"NOT ({' OR '.join(['false', *late])})").withColumn(GAP_END, F.lit(None).cast("long"))
        gaps = self._gaps(changed, before, after)
        if gaps:
            found = changed.sparkSession.createDataFrame(gaps, f"_partition INT, _offset LONG, {GAP_END} LONG")
            new = new.unionByName(found, allowMissingColumns=True)
        self._changes.write(new, known, end)

    def _gaps(self, changed: DataFrame, before: Offsets, after: Offsets) -> list[tuple[int, int, int]]:
        """Return partition, start and end of the ranges of offsets at which the state of the table is unknown.

        If records are missing, compaction has removed them in favour of later ones. All that is known of those is that
        they are in the log now, so a gap extends to the current end of the log.
        """
        counts = {row["_partition"]: row["count"] for row in changed.groupBy("_partition").count().collect()}
        starts = {key: before.get(key, 0) for key in after}
        short = [key for key, start in starts.items() if counts.get(key.partition, 0) < after[key] - start]
        ends = self._end_offsets() if short else {}
        return [(key.partition, starts[key], ends[key]) for key in short]


def materialize_job(
    cluster: Cluster | str,
    topic: str,
    path: str | os.PathLike[str],
    schema: str,
    *,
    history: bool = True,
    envelope: Envelope = Envelope.PLAIN,
) -> Job:
    """Return the job that keeps the table at `path` up to date with a changelog.

    `schema` is the DDL of the rows. You can add fields, but not change their types. Without `history`, changes are not
    kept.
    """

    def materialize(records: DataFrame) -> DataFrame:
        return changes(records, schema, envelope)

    into = MaterializedTable(path, lambda: Increments(cluster, [topic]).end_offsets(), history)
    return Job(materialize, [topic], into, schema=None)


def changes_of(table: Table) -> Table:
    """Return the table of the changes of a table."""
    return Table(table.storage.sibling(CHANGES).uri)
