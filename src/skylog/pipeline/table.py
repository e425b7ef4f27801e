"""Delta tables as sinks and sources of jobs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from skylog.errors import ConfigError
from skylog.model import TopicPartition
from skylog.pipeline.delta.changed_keys import ChangedKeys
from skylog.pipeline.delta.data_files import DEFAULT_FILE_BYTES, FileLayout, WrittenFile, write_files
from skylog.pipeline.delta.errors import ConcurrentWriterError, LostFilesError, TableError, TableSchemaError
from skylog.pipeline.delta.reading import read_files
from skylog.pipeline.delta.schema import check_columns, spelled
from skylog.pipeline.delta.storage import Storage
from skylog.pipeline.delta.table_log import TableFile, TableLog, TableVersion, delta_errors
from skylog.pipeline.delta.upserts import divided, splits_of, touched_files, upserted
from skylog.pipeline.increments import Offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["ConcurrentWriterError", "LostFilesError", "Table", "TableError", "TableSchemaError", "TableVersion"]

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

UNPARSED: Final = "__unparsed"
_ATTEMPTS: Final = 5  # of an upsert that other commits overtake
_HOUR_MS: Final = 3_600_000
_KEYED_FILE_BYTES: Final = 16 << 20
LEAST_KEPT_MS: Final = _HOUR_MS
"""Commands keep files at least this long: an increment writes files before it commits them."""


@dataclass(frozen=True)
class Table:
    """A Delta table: a directory, or `s3://bucket/path` with the usual AWS variables.

        Table("lake/comments", partition_by=("day",))
        Table("s3://lake/users", key=("id",), deleted="is_deleted")

    Without `key`, rows are appended. With `key`, a row replaces the one with the same key, and a row whose column
    `deleted` is true removes it; that column is not stored. Rows of one batch must have different keys. Columns may be
    added at any time. A column keeps its type. `file_bytes` is the size of large files: by default 128 MiB, and 16 MiB
    with `key`, because an upsert rewrites whole files.
    """

    path: str | os.PathLike[str]
    key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    deleted: str | None = None
    file_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("key", "partition_by"):
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
        if self.deleted is not None and not self.key:
            raise ConfigError(f"table {self.path}: a column of deleted rows needs a key")

    @property
    def file_size_bytes(self) -> int:
        """The size of large files."""
        return self.file_bytes or (_KEYED_FILE_BYTES if self.key else DEFAULT_FILE_BYTES)

    @property
    def storage(self) -> Storage:
        return Storage.of(self.path)

    @property
    def target(self) -> str:
        return self.storage.uri

    def open(self) -> OpenTable:
        return OpenTable(self)

    def for_unparsed(self) -> Table:
        """Return the table of records that do not parse: the same path with `__unparsed`."""
        return Table(self.storage.sibling(UNPARSED).uri)

    # -- for readers

    def read(
        self,
        spark: SparkSession,
        *,
        version: int | None = None,
        time_ms: int | None = None,
        offsets: Mapping[TopicPartition, int] | None = None,
    ) -> DataFrame:
        """Return the rows, without a jar. The newest version is the default; see `history` for the others.

        `time_ms` selects the version of that time, and `offsets` the last one without a record from these offsets on.
        """
        log = self.log()
        if (version, time_ms, offsets) != (None, None, None):
            log = log.travel(version=version, time_ms=time_ms, offsets=offsets)
        return read_files(spark, log)

    def history(self, limit: int | None = None) -> list[TableVersion]:
        """Return the versions, newest first, with their times and offsets."""
        return list(self.log().history(limit))

    def offsets(self, topics: Collection[str]) -> dict[TopicPartition, int]:
        """Return the end offsets of the rows, for these topics. Empty if there is no table."""
        log = TableLog.open(self.storage)
        return {} if log is None else log.offsets(topics)

    def exists(self) -> bool:
        return TableLog.open(self.storage) is not None

    def log(self) -> TableLog:
        """Return the newest version. Raises TableError if there is no table."""
        log = TableLog.open(self.storage)
        if log is None:
            raise TableError(f"there is no table in {self.target} yet")
        return log

    # -- upkeep

    def optimize(self, partition: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Merge small files, of one partition or of all. Rows do not change, and readers and writers continue.

        Return Delta's figures. Raises ConcurrentWriterError if another job replaced the same files meanwhile.
        """
        log = self.log()
        version, known = log.version, {each.path for each in log.files()}
        with delta_errors(log.storage):
            filters = [(name, "=", value) for name, value in (partition or {}).items()]
            figures: Mapping[str, Any] = log.table.optimize.compact(
                partition_filters=filters or None, target_size=self._merged_bytes(log)
            )
        log.refresh()
        log.sync_since(version, *(each.path for each in log.files() if each.path not in known))
        return figures

    def _merged_bytes(self, log: TableLog) -> int:
        """Return the size of merged files: that of the job that writes the table, if this value does not say it."""
        if self.key or self.file_bytes:
            return self.file_size_bytes
        return log.file_bytes or (DEFAULT_FILE_BYTES if log.fence is None else _KEYED_FILE_BYTES)

    def vacuum(self, *, keep_ms: int = 7 * 24 * _HOUR_MS) -> list[str]:
        """Delete files that no version of the last `keep_ms` has. Older versions can no longer be read.

        Do not keep less than the time of the longest increment: files are written before they are committed.
        """
        log = self.log()
        with delta_errors(log.storage):
            found: list[str] = log.table.vacuum(
                retention_hours=-(-keep_ms // _HOUR_MS), dry_run=False, enforce_retention_duration=False, full=True
            )
        return found


class OpenTable:
    """A table during a run. See `skylog.pipeline.sink.OpenSink`."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._storage = table.storage
        self.log = TableLog.open(self._storage)

    def offsets(self, topics: Collection[str]) -> Offsets:
        self.log = TableLog.open(self._storage)
        return {} if self.log is None else self.log.offsets(topics)

    def write(
        self, rows: DataFrame, before: Offsets, after: Offsets, before_commit: Callable[[], None] = lambda: None
    ) -> None:
        log = self.prepare(rows.schema, before, after)
        if not self._table.key:
            files = self.write_rows(rows)
            before_commit()
            log.commit(files, before=before, after=after)
            return
        # Used several times, and the topic may be compacted meanwhile. The first query, of the keys, reads all rows.
        changes = self._as_stored(self._spelled(rows.localCheckpoint(eager=False)))
        keys = ChangedKeys(changes, spelled(self._table.key, log.schema))
        self._check_keys(keys)
        before_commit()
        retried(lambda: self._upsert(changes, keys, before, after))

    def _upsert(self, changes: DataFrame, keys: ChangedKeys, before: Offsets, after: Offsets) -> None:
        log = self.prepare(changes.schema, before, after)
        touched = touched_files(log, keys)
        rows = upserted(log, touched, changes, keys, self._table.deleted)
        files = self.write_rows(rows, in_ranges=_are_many(touched), splits=splits_of(touched, keys))
        log.commit(files, touched, before=before, after=after, is_fenced=True)

    def replace(
        self,
        rows: DataFrame,
        before: Offsets,
        after: Offsets,
        facts: Mapping[str, Any] | None = None,
        before_commit: Callable[[], None] = lambda: None,
    ) -> TableLog:
        """Replace all rows. Earlier versions stay readable. `facts` become metadata of the commit.

        The rows may depend on those of `log`. Raises ConcurrentWriterError if another job has replaced those since.
        """
        fence = None if self.log is None else self.log.fence
        log = self.prepare(rows.schema, before, after)
        if log.fence != fence:
            raise ConcurrentWriterError(self._storage.uri)
        files = self.write_rows(rows, in_ranges=bool(self._table.key))
        before_commit()
        log.commit(files, log.files(), before=before, after=after, facts=facts, is_fenced=True)
        return log

    def refresh(self) -> TableLog | None:
        """Return the newest version, or None if there is no table."""
        if self.log is None:
            self.log = TableLog.open(self._storage)
        else:
            self.log.refresh()
        return self.log

    def prepare(self, schema: StructType, before: Offsets, after: Offsets) -> TableLog:
        """Return the newest version. Create the table or add columns to it.

        Raises an error if the rows or the offsets do not fit.
        """
        table, stored = self._table, _without(schema, self._table.deleted)
        log = self.refresh()
        if log is None:
            check_columns(stored, table.partition_by, self._storage.uri)
            file_bytes = table.file_size_bytes if table.key or table.file_bytes else None
            log = self.log = TableLog.open_or_create(self._storage, stored, table.partition_by, file_bytes=file_bytes)
        log.check_offsets(before, after)
        self._check_partitioning(log)
        log.grow(stored)
        return log

    def write_rows(self, rows: DataFrame, *, in_ranges: bool = False, splits: Sequence[Any] = ()) -> list[WrittenFile]:
        """Write files for a commit, with the columns as the table spells them.

        If `in_ranges`, tasks have ranges of keys, and so do files, which an upsert can tell apart by their bounds.
        `splits` are where ranges of the first key column begin, if known.
        """
        table, rows = self._table, self._spelled(rows)
        layout = FileLayout(table.partition_by, table.key, table.file_size_bytes)
        if in_ranges and splits and not table.partition_by:
            rows = divided(rows, table.key[0], splits)
        elif in_ranges:
            rows = rows.repartitionByRange(*(f"`{name}`" for name in (*table.partition_by, *table.key)))
        return write_files(rows, self._storage, layout, rebalances=not in_ranges)

    def _spelled(self, rows: DataFrame) -> DataFrame:
        names = rows.columns if self.log is None else spelled(rows.columns, self.log.schema)
        return rows if names == rows.columns else rows.toDF(*names)

    def _as_stored(self, rows: DataFrame) -> DataFrame:
        """Return the rows with null for empty texts in partition columns of the key, as Delta stores them."""
        from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

        both = {name.lower() for name in self._table.key} & {name.lower() for name in self._table.partition_by}
        texts = [name for name, kind in rows.dtypes if name.lower() in both and kind == "string"]
        return rows.withColumns({name: F.nullif(F.col(f"`{name}`"), F.lit("")) for name in texts}) if texts else rows

    def _check_keys(self, keys: ChangedKeys) -> None:
        wrong = keys.wrong()
        if wrong is None:
            return
        if None in wrong.values:
            names = " or no ".join(self._table.key)
            raise TableError(f"{self._storage.uri}: a row has no {names}, which are the key; leave it out")
        key = ", ".join(f"{name}={value!r}" for name, value in zip(self._table.key, wrong.values, strict=True))
        raise TableError(
            f"{self._storage.uri}: {wrong.rows} rows of one batch have the key {key}; return one row for each key, "
            "for example with max_by"
        )

    def _check_partitioning(self, log: TableLog) -> None:
        if log.partition_by != self._table.partition_by:
            raise TableError(
                f"{self._storage.uri} is partitioned by {', '.join(log.partition_by) or 'nothing'}, not by "
                f"{', '.join(self._table.partition_by) or 'nothing'}; use the same columns, or another table"
            )

    def has_rows(self) -> bool:
        return self.log is not None and bool(self.log.files())

    def close(self) -> None:
        """Do nothing. A table is open only while it is read or written."""


def retried(write: Callable[[], _Result]) -> _Result:
    """Call `write`, and again if another job has changed the table meanwhile. It starts from the newest version.

    Raises ConcurrentWriterError if the other job reads the same topic, or is faster too often.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return write()
        except ConcurrentWriterError as error:
            logger.info("%s; trying again from its version", error)
    return write()


def _are_many(touched: Sequence[TableFile]) -> bool:
    """Return whether several tasks may write the rows of these files and new ones, which are of unknown size."""
    return not touched or sum(file.size_bytes for file in touched) > _KEYED_FILE_BYTES


def _without(schema: StructType, name: str | None) -> StructType:
    from pyspark.sql.types import StructType

    return StructType([each for each in schema.fields if name is None or each.name.lower() != name.lower()])
