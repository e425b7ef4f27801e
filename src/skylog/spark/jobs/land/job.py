"""The job: increments of topics into tables, one for each topic."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from skylog.model import TopicPartition
from skylog.spark.jobs.increments import Increment, Offsets
from skylog.spark.jobs.land.commit import Side
from skylog.spark.jobs.land.completeness import is_whole
from skylog.spark.jobs.land.errors import TableError
from skylog.spark.jobs.land.files import remove_tree
from skylog.spark.jobs.land.merge import CODEC, MergeSettings
from skylog.spark.jobs.land.reports import LandedReports
from skylog.spark.jobs.land.staged import StagedFile, landed, staged_files
from skylog.spark.jobs.land.table import Table
from skylog.spark.jobs.land.transform import (
    ENVELOPE,
    OFFSET,
    PARTITION,
    PARTITIONED_BY,
    events_frame,
    unparsed_frame,
)
from skylog.spark.jobs.parquet import write_parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

NAME: Final = "land"
DEFAULT_FILE_SIZE_BYTES: Final = 128 << 20
_TRIES: Final = 3  # of an increment from which compaction removes records meanwhile


@dataclass(frozen=True)
class LandSettings:
    """How topics land. `schema` is Spark's DDL; without `event_time`, a field of it, the record's time counts.

    `merge` is None for files that stay as they are. `is_audited`: whether counts go to the audit topic.
    """

    warehouse: Path
    schema: str = ENVELOPE
    event_time: str | None = None
    file_size_bytes: int = DEFAULT_FILE_SIZE_BYTES
    merge: MergeSettings | None = field(default_factory=MergeSettings)
    is_audited: bool = True


class Land:
    """Puts increments into tables, which are given by topic; see `skylog.spark.jobs.runner.IncrementalJob`."""

    name = NAME

    def __init__(
        self,
        settings: LandSettings,
        schema: StructType,
        tables: Mapping[str, Table],
        reports: LandedReports | None,
    ) -> None:
        self._settings = settings
        self._schema = schema
        self._columns = {each.name: each.dataType.simpleString() for each in schema.fields}
        self._tables = tables
        self._reports = reports
        for table in tables.values():
            _check_columns(table, self._columns)
            self._report(table)  # what the last run may have had no time for

    def done(self) -> Offsets | None:
        found = {
            TopicPartition(topic, number): offset
            for topic, table in self._tables.items()
            for number, offset in table.state.end_offsets.items()
        }
        return found or None

    def apply(self, records: DataFrame, increment: Increment) -> None:
        """One commit for each table. A crash between two of them leaves each with its own offsets: nothing is lost."""
        for _ in range(_TRIES):
            staging = next(iter(self._tables.values())).staging / uuid.uuid4().hex
            try:
                files = self._write(records, increment.offsets, staging)
                if is_whole(files, increment, records):
                    self._commit(files, increment)
                    break
            finally:
                remove_tree(staging)
        else:
            raise TableError(
                f"{', '.join(self._tables)}: records have gone from the log {_TRIES} times while they were landed, as "
                "compaction does it; nothing was committed, run the job again"
            )
        for table in self._tables.values():
            self._report(table)

    def _commit(self, files: Mapping[str, Sequence[StagedFile]], increment: Increment) -> None:
        starts, ends = _by_topic(increment.start), _by_topic(increment.end)
        for topic, table in self._tables.items():
            if topic in starts or not table.state.end_offsets:
                found = files.get(topic, [])
                counted = landed(topic, found, starts.get(topic, {}), ends.get(topic, {}))
                table.land(found, counted, ends.get(topic, {}), self._columns)

    def _write(self, records: DataFrame, offsets: int, staging: Path) -> dict[str, list[StagedFile]]:
        schema, event_time = self._schema, self._settings.event_time
        self._write_side(events_frame(records, schema, event_time), staging / Side.EVENTS)
        files = staged_files(staging / Side.EVENTS, Side.EVENTS)
        if sum(file.rows for found in files.values() for file in found) < offsets:
            # Some records don't parse, or the log has gaps: look again for the former. They are few as a rule.
            self._write_side(unparsed_frame(records, schema, event_time), staging / Side.UNPARSED)
            for topic, found in staged_files(staging / Side.UNPARSED, Side.UNPARSED).items():
                files.setdefault(topic, []).extend(found)
        return files

    def _write_side(self, frame: DataFrame, path: Path) -> None:
        """Rows of an hour are brought together, so that an hour gets few files, whatever the number of tasks."""
        frame = frame.hint("rebalance", *PARTITIONED_BY).sortWithinPartitions(*PARTITIONED_BY, PARTITION, OFFSET)
        options = {"compression": CODEC, "maxRecordsPerFile": self._rows_per_file()}
        write_parquet(frame, path, partitioned_by=PARTITIONED_BY, options=options)

    def _rows_per_file(self) -> int:
        """So many that a file has about the target size; 0, which is no limit, before the first file."""
        known = [each for table in self._tables.values() if (each := table.bytes_per_row())]
        return max(int(self._settings.file_size_bytes / max(known)), 1) if known else 0

    def _report(self, table: Table) -> None:
        if self._reports is None:
            table.reported(table.state.version)
        else:
            self._reports.publish(table)


def _by_topic(offsets: Offsets) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for key, offset in offsets.items():
        found[key.topic][key.partition] = offset
    return found


def _check_columns(table: Table, columns: Mapping[str, str]) -> None:
    """New columns are welcome, and old ones may go. Raises TableError for one that would change its type."""
    before = {name.lower(): kind for name, kind in table.state.columns.items()}
    for name, kind in columns.items():
        was = before.get(name.lower(), kind)
        if was != kind:
            raise TableError(
                f"{table.path}: column '{name}' is {was} and cannot become {kind}; give the new field another name, or "
                "land the topic once more in another warehouse"
            )
