"""The job: each increment of the changelog makes the next version of the table out of the one before."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from skylog.client import Admin
from skylog.spark.jobs.increments import Increment, Offsets
from skylog.spark.jobs.materialize.changes import as_changes, changes, materialize
from skylog.spark.jobs.parquet import read_parquet, write_parquet
from skylog.spark.jobs.versioned_table import TableError, Version, VersionedTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHANGES: Final = "changes"
GAPS: Final = "gaps"


class Materialize:
    """Keeps a table, which `open_table` opens, at the rows of `topic`.

    `schema` is the DDL of the rows. It may get more fields; a field cannot become another type. `admin` tells where
    logs end.
    """

    name = "materialize"

    def __init__(self, table: VersionedTable, topic: str, schema: str, admin: Admin) -> None:
        self._table = table
        self._topic = topic
        self._schema = schema
        self._admin = admin
        self._has_history = CHANGES in table.history

    @staticmethod
    def open_table(path: Path, *, history: bool = True) -> VersionedTable:
        """For `with`; its history is what `as_of` reads."""
        return VersionedTable(path, frozenset([CHANGES] if history else ()))

    def done(self) -> Offsets | None:
        version = self._table.version
        if version is None:
            return None
        if others := {key.topic for key in version.offsets} - {self._topic}:
            raise TableError(
                f"{self._table.path} is the table of topic '{others.pop()}', not of '{self._topic}': name another"
            )
        if self._has_history != version.facts["history"]:
            how = "--history" if version.facts["history"] else "--no-history"
            raise TableError(f"{self._table.path} is kept with {how}, and has to go on so: or name another table")
        return version.offsets

    def apply(self, records: DataFrame, increment: Increment) -> None:
        spark, before = records.sparkSession, self._table.version
        self._table.check_follows(increment.start)
        with self._table.draft() as draft:
            # Read once: were a compaction to come in between, a second reading would find fewer records.
            write_parquet(changes(records, self._schema), draft.part(CHANGES))
            changed = read_parquet(spark, draft.part(CHANGES))
            gaps = self._gaps(changed, increment, before)
            if before is not None:
                rows = read_parquet(spark, before.path)
                _check_types(rows, changed, self._table.path)
                changed = as_changes(rows).unionByName(changed, allowMissingColumns=True)
            write_parquet(materialize(changed), draft.rows)
            self._table.commit(draft, increment.end, {GAPS: gaps, "history": self._has_history})

    def _gaps(self, changed: DataFrame, increment: Increment, before: Version | None) -> dict[str, list[list[int]]]:
        """By partition, the offsets between which nobody can tell how the table was.

        Where records are missing, compaction has removed them in favour of later ones, of which only this is known:
        they were in the log before now.
        """
        gaps: dict[str, list[list[int]]] = dict(before.facts[GAPS]) if before is not None else {}
        counts = {row["_partition"]: row["count"] for row in changed.groupBy("_partition").count().collect()}
        known = before.offsets if before is not None else {}
        starts = {key: known.get(key, 0) for key in increment.start}
        short = [key for key, start in starts.items() if counts.get(key.partition, 0) < increment.end[key] - start]
        ranges = self._admin.offset_ranges(short)
        for key in short:
            gaps[str(key.partition)] = [*gaps.get(str(key.partition), []), [starts[key], ranges[key].end_offset]]
        return gaps


def _check_types(rows: DataFrame, changed: DataFrame, path: Path) -> None:
    known: dict[str, Any] = dict(rows.dtypes)
    for name, kind in changed.dtypes:
        if known.get(name, kind) != kind:
            raise TableError(
                f"{path}: column '{name}' is {known[name]} and cannot become {kind}; make another table from the topic"
            )
