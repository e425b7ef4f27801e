"""The job: applies each increment of the changelog to the table. Only files with changed rows are rewritten.

All changes are kept in a second table, `TABLE__changes`, for earlier states. It has its own offsets and is written
first. After a crash in between, it skips the changes that it has.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from skylog.pipeline.delta.errors import TableError
from skylog.pipeline.delta.reading import read_files
from skylog.pipeline.delta.upserts import touched_files
from skylog.pipeline.increments import Increment, Offsets
from skylog.pipeline.jobs.materialize.changes import KEY, as_changes, changes, materialize
from skylog.pipeline.one_task import are_few, has_one_partition
from skylog.pipeline.table import Table, retried

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

CHANGES: Final = "__changes"
GAP_END: Final = "_gap_end"
"""A row of the changes with this column is a gap: the state of the table is unknown from `_offset` to this offset."""


class Materialize:
    """Keeps the table at `path` up to date with `topic`.

    `schema` is the DDL of the rows. You can add fields, but not change their types. `end_offsets` returns the current
    ends of the logs. Without `history`, changes are not kept.
    """

    name = "materialize"

    def __init__(
        self,
        path: str | os.PathLike[str],
        topic: str,
        schema: str,
        end_offsets: Callable[[], Offsets],
        *,
        history: bool = True,
    ) -> None:
        table = Table(path, key=(KEY,))
        self._topic = topic
        self._schema = schema
        self._end_offsets = end_offsets
        self._table = table.open()
        self._changes = changes_of(table).open()
        self._has_history = history
        self._where = table.target
        self._columns: StructType | None = None
        self._done: Offsets = {}

    def done(self) -> Offsets | None:
        offsets = self._done = self._table.offsets([self._topic])
        kept = self._changes.offsets([self._topic])
        log = self._table.log
        if log is None:
            return None
        if not offsets:
            raise TableError(f"{self._where} is not the table of topic '{self._topic}'; use another table")
        if self._has_history != bool(kept):
            how = "--history" if kept else "--no-history"
            raise TableError(f"{self._where} was created with {how}; use the same option, or another table")
        return offsets

    def apply(self, records: DataFrame, increment: Increment) -> None:
        # Read only once: if compaction ran in between, a second read would return fewer records.
        changed = changes(records, self._schema).localCheckpoint()
        columns = self._columns = self._columns or materialize(changed).schema
        self._table.prepare(columns, self._done, increment.end)
        if self._has_history:
            self._keep(changed, increment, self._done)
        retried(lambda: self._merge(changed, columns, increment.end))
        self._done = increment.end

    def _merge(self, changed: DataFrame, columns: StructType, end: Offsets) -> None:
        log = self._table.prepare(columns, self._done, end)
        touched = touched_files(log, changed.where(F.col(KEY).isNotNull()), (KEY,))
        rows = as_changes(read_files(changed.sparkSession, log, touched)) if touched else None
        merged = changed if rows is None else rows.unionByName(changed, allowMissingColumns=True)
        is_one_task = are_few(touched) and has_one_partition(changed)
        files = self._table.write_rows(materialize(merged, is_one_task=is_one_task))
        log.commit(files, touched, before=self._done, after=end, is_fenced=True)

    def _keep(self, changed: DataFrame, increment: Increment, before: Offsets) -> None:
        """Add the changes, and the gaps between them, to the table of changes."""
        log = self._changes.log
        known = {} if log is None else log.offsets([self._topic])
        after = {key: max(end, known.get(key, end)) for key, end in increment.end.items()}
        late = [f"_partition = {key.partition} AND _offset < {end}" for key, end in known.items()]
        new = changed.where(f"NOT ({' OR '.join(['false', *late])})").withColumn(GAP_END, F.lit(None).cast("long"))
        gaps = self._gaps(changed, increment, before)
        if gaps:
            found = changed.sparkSession.createDataFrame(gaps, f"_partition INT, _offset LONG, {GAP_END} LONG")
            new = new.unionByName(found, allowMissingColumns=True)
        self._changes.write(new, known, after)

    def _gaps(self, changed: DataFrame, increment: Increment, before: Offsets) -> list[tuple[int, int, int]]:
        """Return partition, start and end of the ranges of offsets at which the state of the table is unknown.

        If records are missing, compaction has removed them in favour of later ones. All that is known of those is that
        they are in the log now, so a gap extends to the current end of the log.
        """
        counts = {row["_partition"]: row["count"] for row in changed.groupBy("_partition").count().collect()}
        starts = {key: before.get(key, 0) for key in increment.start}
        short = [key for key, start in starts.items() if counts.get(key.partition, 0) < increment.end[key] - start]
        ends = self._end_offsets() if short else {}
        return [(key.partition, starts[key], ends[key]) for key in short]


def changes_of(table: Table) -> Table:
    """Return the table of the changes of a table."""
    return Table(table.storage.sibling(CHANGES).uri)
