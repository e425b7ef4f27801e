"""The steps of the job: writes increments of topics to tables, one table per topic and one for its unparsed records."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import StructType

from skylog.pipeline.delta.data_files import (
    DEFAULT_FILE_BYTES,
    REPORT,
    FileLayout,
    FileTask,
    WrittenFile,
    write_files,
    written_files,
)
from skylog.pipeline.delta.errors import TableError, TableSchemaError
from skylog.pipeline.delta.schema import spelled
from skylog.pipeline.delta.storage import Storage
from skylog.pipeline.delta.table_log import TableLog
from skylog.pipeline.increments import Increment, Increments, Offsets
from skylog.pipeline.jobs.land.completeness import is_complete
from skylog.pipeline.jobs.land.direct import OPEN_FILES, OtherRecords, PlainRows
from skylog.pipeline.jobs.land.reports import AuditReporter, landed_facts, unreported
from skylog.pipeline.jobs.land.tallies import CommittedRange, count_ranges, summarise
from skylog.pipeline.jobs.land.transform import (
    ENVELOPE,
    OFFSET,
    PARTITION,
    PARTITIONED_BY,
    TABLE,
    events_frame,
    landed_schema,
    unparsed_frame,
)
from skylog.pipeline.jobs.land.upkeep import UpkeepSettings
from skylog.pipeline.plain_events import PlainEvents
from skylog.pipeline.table import UNPARSED
from skylog.spark.schema import EVENT, arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

NAME: Final = "land"
_TRIES: Final = 3  # attempts for an increment, if compaction deletes records of it meanwhile


@dataclass(frozen=True)
class LandSettings:
    """Settings of the job. `schema` is in Spark's DDL. `event_time` is a field of it; the default is the record's time.

    The warehouse is a directory or `s3://bucket/path`. If `upkeep` is None, files are neither merged nor deleted. If
    `is_audited`, counts are published to the audit topic. `registry` is the address of a schema registry: values are
    Avro, and the columns are those of all versions of their schema, instead of `schema`. `subject` is the data source's
    option valueSubject.
    """

    warehouse: str | PathLike[str]
    schema: str = ENVELOPE
    event_time: str | None = None
    file_size_bytes: int = DEFAULT_FILE_BYTES
    upkeep: UpkeepSettings | None = field(default_factory=UpkeepSettings)
    is_audited: bool = True
    registry: str | None = None
    subject: str | None = None

    @property
    def source_options(self) -> dict[str, str]:
        """The options of the data source that decode values."""
        if self.registry is None:
            return {}
        subject = {} if self.subject is None else {"valueSubject": self.subject}
        return {"valueFormat": "avro", "schemaRegistryUrl": self.registry, **subject}


class LandSteps:
    """Writes increments to the tables of `topics`. See `skylog.pipeline.runner.IncrementalJob`."""

    name = NAME

    def __init__(
        self,
        spark: SparkSession,
        settings: LandSettings,
        increments: Increments,
        topics: Sequence[str],
        reporter: AuditReporter | None,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._increments = increments
        self._topics = topics
        self._reporter = reporter
        self._warehouse = Storage.of(settings.warehouse)
        self._reported: dict[str, str] = {}
        self._adopt(increments.schema())
        self._plain = None if settings.event_time or increments.has_set_tasks else self._plain_events()
        self._tables = {topic: self._open(topic, self._columns) for topic in topics}
        for topic, table in self._tables.items():
            self._report(topic, table)  # the last run may have ended before it reported

    def _adopt(self, records: StructType) -> None:
        """Land records with these columns from now on."""
        self._records = records
        self._schema = landed_schema(records, self._settings.schema)
        self._empty = self._spark.createDataFrame([], records)
        self._columns = _stored(events_frame(self._empty, self._schema, self._settings.event_time).schema)

    def _plain_events(self) -> PlainEvents | None:
        return None if EVENT in self._records.names else PlainEvents.of(self._schema)

    @cached_property
    def _side_columns(self) -> StructType:
        return _stored(unparsed_frame(self._empty, self._schema, self._settings.event_time).schema)

    def done(self) -> Offsets | None:
        self._tables = {topic: self._open(topic, self._columns) for topic in self._topics}
        found = {key: offset for topic, table in self._tables.items() for key, offset in table.offsets([topic]).items()}
        return found or None

    def apply(self, records: DataFrame, increment: Increment) -> None:
        """Commit to each table. A crash between two commits loses nothing, because each table has its own offsets."""
        if records.schema != self._records:  # there are new versions of the values' schema
            self._adopt(records.schema)
        for topic, table in self._tables.items():
            if cut := increment.cut_from(table.offsets([topic])):
                self._cut_unparsed(topic, cut)
        for _ in range(_TRIES):
            written = self._write(records, increment)
            if is_complete(written.by_topic(), increment, records):
                self._commit(written, increment)
                break
        else:
            raise TableError(
                f"{', '.join(self._topics)}: records disappeared from the log during each of {_TRIES} attempts, for "
                "example by compaction; nothing was committed, run the job again"
            )
        for topic, table in self._tables.items():
            self._report(topic, table)

    def _open(self, name: str, columns: StructType) -> TableLog:
        return TableLog.open_or_create(self._warehouse.child(name), columns, PARTITIONED_BY)

    # -- an increment

    def _write(self, records: DataFrame, increment: Increment) -> _Written:
        schema, event_time = self._schema, self._settings.event_time
        for table in self._tables.values():
            table.grow(self._columns)
        written = _Written([])
        if self._plain is not None and (files := self._write_directly(self._plain, increment)) is not None:
            written.events += files
            if _rows(files) == increment.offsets:
                return written
            others = OtherRecords(self._plain)
            records = self._increments.mapped(self._spark, increment, others, self._records)
            if _rows(files) < increment.offsets / 2:
                self._stop_direct("most records are not plain events")
        written.events += self._write_rows(self._spelled(events_frame(records, schema, event_time)))
        if _rows(written.events) < increment.offsets:
            # Some records do not parse, or the log has gaps. Read again for the former, which are usually few.
            bad = unparsed_frame(records, schema, event_time).persist()
            try:
                self._write_unparsed(bad, written)
            finally:
                bad.unpersist()
        return written

    def _write_directly(self, plain: PlainEvents, increment: Increment) -> list[WrittenFile] | None:
        """Write the plain events in the tasks that read them. Return None if their hours are in no order."""
        rows = self._spelled(events_frame(self._empty, self._schema))
        layout = replace(self._layout(), open_files=OPEN_FILES)
        task = FileTask(self._warehouse, layout, PlainRows(plain, arrow_schema(rows.schema)))
        files = written_files(self._increments.mapped(self._spark, increment, task, REPORT), self._warehouse)
        if files is None:
            self._stop_direct("hours are in no order")
        return files

    def _stop_direct(self, reason: str) -> None:
        logger.info("%s: %s; Spark parses and sorts from now on", ", ".join(self._topics), reason)
        self._plain = None

    def _spelled(self, frame: DataFrame) -> DataFrame:
        """Return the rows with the columns as the tables spell them."""
        found = {tuple(spelled(frame.columns, table.schema)) for table in self._tables.values()}
        if len(found) > 1:
            one, other, *_ = next(sorted(names) for names in map(set, zip(*found, strict=True)) if len(names) > 1)
            raise TableSchemaError(
                f"{self._warehouse.uri}: the column '{one}' of a topic is '{other}' of another; land them separately"
            )
        (names,) = found
        return frame if list(names) == frame.columns else frame.toDF(*names)

    def _write_unparsed(self, bad: DataFrame, written: _Written) -> None:
        """Write the rows that their table does not have yet. It has some if a crash followed its commit."""
        known: dict[str, Offsets] = {}
        for (name,) in bad.select(TABLE).distinct().collect():
            topic = name.removesuffix(UNPARSED)
            written.sides[topic] = side = self._open(name, self._side_columns)  # before there are files in it
            side.grow(self._side_columns)
            known[name] = side.offsets([topic])
        is_known = _is_known(known)
        written.unparsed = self._write_rows(bad.where(f"NOT {is_known}"))
        written.repeated = self._write_rows(bad.where(is_known))  # only to count them; not committed

    def _write_rows(self, frame: DataFrame) -> list[WrittenFile]:
        """Write rows grouped by hour, so that an hour gets few files, however many tasks there are."""
        return write_files(frame, self._warehouse, self._layout())

    def _layout(self) -> FileLayout:
        sort_by, size_bytes = (PARTITION, OFFSET), self._settings.file_size_bytes
        return FileLayout(PARTITIONED_BY, sort_by, size_bytes, self._rows_per_file(), summarise, TABLE)

    def _rows_per_file(self) -> int | None:
        """Return the rows for a file of about the target size, or None before the first file."""
        sizes = [(file.size_bytes, file.rows) for table in self._tables.values() for file in table.files() if file.rows]
        if not sizes:
            return None
        row_bytes = sum(size for size, _ in sizes) / sum(rows for _, rows in sizes)
        return max(int(self._settings.file_size_bytes / row_bytes), 1)

    # -- commits

    def _commit(self, written: _Written, increment: Increment) -> None:
        files = written.by_topic()
        for topic, table in self._tables.items():
            start, end = increment.of_topic(topic)
            before = table.offsets([topic])
            if not start and before and not increment.cut_from(before):
                continue
            ranges = count_ranges(
                topic,
                files.get(topic, []),
                {key.partition: offset for key, offset in start.items()},
                {key.partition: offset for key, offset in end.items()},
            )
            self._check_new(table, start, before)
            if topic in written.sides:  # first, see `_write_unparsed`
                self._commit_unparsed(written.sides[topic], topic, written.unparsed, end)
            events = [file for file in written.events if file.table == topic]
            table.commit(events, before=before, after=end, facts=self._facts(table, ranges))

    def _commit_unparsed(self, side: TableLog, topic: str, files: Sequence[WrittenFile], end: Offsets) -> None:
        before = side.offsets([topic])
        after = {key: max(offset, before.get(key, offset)) for key, offset in end.items()}
        side.commit([file for file in files if file.table == topic + UNPARSED], before=before, after=after)

    def _cut_unparsed(self, topic: str, ends: Offsets) -> None:
        """Go back to the ends of logs that are shorter now, so that what comes there is not taken for known."""
        side = TableLog.open(self._warehouse.child(topic + UNPARSED))
        if side is not None:
            known = side.offsets([topic])
            side.commit([], before=known, after={key: min(end, ends.get(key, end)) for key, end in known.items()})

    def _facts(self, table: TableLog, ranges: Sequence[CommittedRange]) -> dict[str, str]:
        return landed_facts(ranges, self._reported.get(table.storage.uri))

    def _check_new(self, table: TableLog, start: Offsets, before: Offsets) -> None:
        for key, offset in start.items():
            if offset < before.get(key, 0):
                raise TableError(
                    f"{table.storage.uri}: {key} has landed up to offset {before[key]}, but the increment starts at "
                    f"offset {offset}; if the topic was recreated, land it in another warehouse"
                )

    def _report(self, topic: str, table: TableLog) -> None:
        """Publish the counts of commits that may not be published yet."""
        commits = unreported(table)
        if commits and (self._reporter is None or self._reporter.publish(topic, table, commits)):
            self._reported[table.storage.uri] = commits[-1].id


@dataclass
class _Written:
    """The files of an increment. `repeated` has unparsed records that their table, one of `sides`, has already."""

    events: list[WrittenFile]
    unparsed: list[WrittenFile] = field(default_factory=list)
    repeated: list[WrittenFile] = field(default_factory=list)
    sides: dict[str, TableLog] = field(default_factory=dict)

    def by_topic(self) -> dict[str, list[WrittenFile]]:
        found: dict[str, list[WrittenFile]] = defaultdict(list)
        for file in (*self.events, *self.unparsed, *self.repeated):
            found[file.table.removesuffix(UNPARSED)].append(file)
        return found


def _rows(files: Iterable[WrittenFile]) -> int:
    return sum(file.rows for file in files)


def _is_known(known: Mapping[str, Offsets]) -> str:
    """Return the SQL condition for unparsed records that their table has."""
    ranges = [
        f"({TABLE} = '{name}' AND {PARTITION} = {key.partition} AND {OFFSET} < {end})"
        for name, ends in known.items()
        for key, end in ends.items()
    ]
    return f"({' OR '.join(['false', *ranges])})"


def _stored(schema: StructType) -> StructType:
    """Return the columns of a table."""
    return StructType([each for each in schema.fields if each.name != TABLE])
