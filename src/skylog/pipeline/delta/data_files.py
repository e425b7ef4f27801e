"""Writes the rows of a DataFrame as Parquet files, in Spark's tasks. They are in no table until a commit adds them.

A task writes one file after the other and returns a description of each, which Spark delivers to the driver. Files of
attempts that failed are never described. They stay behind until `vacuum` deletes them.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skylog.pipeline.delta.errors import LostFilesError
from skylog.pipeline.delta.statistics import statistics
from skylog.pipeline.delta.storage import Storage
from skylog.pipeline.one_task import has_one_partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CODEC: Final = "zstd"
DEFAULT_FILE_BYTES: Final = 128 << 20
_GROUP_BYTES: Final = 64 << 20  # of a row group, before compression
_REPORT: Final = "table STRING, path STRING, size_bytes LONG, rows LONG, partition STRING, stats STRING, summary STRING"
_PLAIN: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")

Summarise = Callable[[pa.Table], Any]
"""Returns facts about rows of a file, as JSON values. They come back with the description of the file."""


@dataclass(frozen=True)
class FileLayout:
    """How rows become files. `max_rows` limits a file if set. `summarise` is called with each part of a file.

    If the rows belong to several tables, `table_by` is the column with the name of the table, and the location is that
    of the directory of these tables.
    """

    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    file_bytes: int = DEFAULT_FILE_BYTES
    max_rows: int | None = None
    summarise: Summarise | None = None
    table_by: str | None = None

    @property
    def split_by(self) -> tuple[str, ...]:
        """The columns whose values are the same in all rows of a file. They are not in the file."""
        return self.partition_by if self.table_by is None else (self.table_by, *self.partition_by)


class WrittenFile(NamedTuple):
    """A finished file. `path` is relative to the table. `summaries` are the results of `summarise`."""

    table: str
    path: str
    size_bytes: int
    rows: int
    partition: dict[str, str | None]
    stats: str
    summaries: list[Any]
    written_ms: int


def write_files(
    frame: DataFrame, storage: Storage, layout: FileLayout, *, rebalances: bool = True
) -> list[WrittenFile]:
    """Write the rows and return the files: few, however many tasks there are, unless the tasks stay as they are.

    Raises LostFilesError if the driver does not see one.
    """
    report = _report(frame, storage, layout)
    if rebalances and not has_one_partition(report):
        report = _report(frame.hint("rebalance", *layout.split_by), storage, layout)
    files = [_written_file(row.asDict()) for row in report.collect()]
    _check_seen(files, storage)
    return files


def _report(frame: DataFrame, storage: Storage, layout: FileLayout) -> DataFrame:
    if order := (*layout.split_by, *layout.sort_by):
        frame = frame.sortWithinPartitions(*(f"`{name}`" for name in order))
    return frame.mapInArrow(_Task(storage, layout), _REPORT)


def write_batches(batches: Iterable[pa.RecordBatch], storage: Storage, layout: FileLayout) -> list[WrittenFile]:
    """Write rows without Spark. They must be sorted by `split_by`."""
    return [_written_file(row) for found in _Task(storage, layout)(batches) for row in found.to_pylist()]


def _written_file(row: Mapping[str, Any]) -> WrittenFile:
    return WrittenFile(
        row["table"],
        row["path"],
        row["size_bytes"],
        row["rows"],
        json.loads(row["partition"]),
        row["stats"],
        json.loads(row["summary"]),
        time.time_ns() // 1_000_000,
    )


def _check_seen(files: Sequence[WrittenFile], storage: Storage) -> None:
    for file in files if storage.is_local else ():
        try:
            is_seen = Path(storage.uri, file.table, file.path).stat().st_size == file.size_bytes
        except OSError:
            is_seen = False
        if not is_seen:
            raise LostFilesError(storage.uri, file.path)


@dataclass(frozen=True)
class _Task:
    """The function of a task. A class, because Spark pickles it."""

    storage: Storage
    layout: FileLayout

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = _TaskWriter(self.storage, self.layout)
        for batch in batches:
            if batch.num_rows:
                writer.write(batch)
        writer.close()
        if writer.finished:
            yield pa.RecordBatch.from_pylist(writer.finished)


class _TaskWriter:
    """Writes batches that are sorted by the partition columns, with one open file."""

    def __init__(self, storage: Storage, layout: FileLayout) -> None:
        self.finished: list[dict[str, Any]] = []
        self._storage = storage
        self._layout = layout
        self._files = storage.file_system()
        self._values: tuple[Any, ...] = ()
        self._file: _OpenFile | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [batch.column(batch.schema.get_field_index(name)) for name in self._layout.split_by]
        data = batch.drop_columns(list(self._layout.split_by)) if columns else batch
        for start, end in _runs(columns, batch.num_rows):
            values = tuple(column[start].as_py() for column in columns)
            if self._file is not None and values != self._values:
                self.close()
            self._values = values
            self._append(data.slice(start, end - start))

    def _append(self, rows: pa.RecordBatch) -> None:
        limit = self._layout.max_rows
        while rows.num_rows:
            if self._file is None:
                self._file = self._open(rows.schema)
            room = rows.num_rows if limit is None else limit - self._file.rows
            self._file.append(rows.slice(0, room))
            rows = rows.slice(min(room, rows.num_rows))
            is_full = limit is not None and self._file.rows >= limit
            if is_full or self._file.written_bytes >= self._layout.file_bytes:
                self.close()

    def _open(self, schema: pa.Schema) -> _OpenFile:
        folder = "/".join(filter(None, (self._table, partition_directory(self._partition))))
        if self._storage.is_local:
            self._files.create_dir(folder or "/", recursive=True)
        path = f"{folder}/part-{uuid.uuid4().hex}.parquet".lstrip("/")
        return _OpenFile(self._files, path, schema, self._layout)

    @property
    def _table(self) -> str:
        return "" if self._layout.table_by is None else self._values[0]

    @property
    def _partition(self) -> dict[str, Any]:
        names = self._layout.partition_by
        return dict(zip(names, self._values[len(self._values) - len(names) :], strict=True))

    def close(self) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        footer, size_bytes = file.close()
        self._storage.sync(file.path)
        partition = {name: partition_text(value) for name, value in self._partition.items()}
        self.finished.append(
            {
                "table": self._table,
                "path": file.path.removeprefix(f"{self._table}/"),
                "size_bytes": size_bytes,
                "rows": footer.num_rows,
                "partition": json.dumps(partition),
                "stats": statistics(footer),
                "summary": json.dumps(file.summaries),
            }
        )


class _OpenFile:
    """A Parquet file being written. Rows are collected to row groups."""

    def __init__(self, files: Any, path: str, schema: pa.Schema, layout: FileLayout) -> None:
        self.path = path
        self.rows = 0
        self.summaries: list[Any] = []
        self._summarise = layout.summarise
        self._max_group_bytes = min(_GROUP_BYTES, 2 * layout.file_bytes)  # the size of a file is known after a group
        self._group: list[pa.RecordBatch] = []
        self._group_bytes = 0
        self._out = files.open_output_stream(path)
        self._writer = pq.ParquetWriter(self._out, schema.remove_metadata(), compression=CODEC)

    @property
    def written_bytes(self) -> int:
        return int(self._out.tell())

    def append(self, rows: pa.RecordBatch) -> None:
        self.rows += rows.num_rows
        self._group.append(rows)
        self._group_bytes += rows.nbytes
        if self._group_bytes >= self._max_group_bytes:
            self._flush()

    def _flush(self) -> None:
        if self._group:
            table = pa.Table.from_batches(self._group).replace_schema_metadata(None)
            self._writer.write_table(table, row_group_size=table.num_rows)
            if self._summarise is not None:
                self.summaries.append(self._summarise(table))
            self._group, self._group_bytes = [], 0

    def close(self) -> tuple[pq.FileMetaData, int]:
        self._flush()
        self._writer.close()
        size_bytes = int(self._out.tell())
        self._out.close()
        return self._writer.writer.metadata, size_bytes


def _runs(columns: Sequence[pa.Array], rows: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of rows with equal values in all columns."""
    is_start = np.zeros(rows, dtype=bool)
    is_start[0] = True
    for column in columns:
        codes = column.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False)
        is_start[1:] |= codes[1:] != codes[:-1]
    starts = np.flatnonzero(is_start)
    yield from zip(starts.tolist(), [*starts[1:].tolist(), rows], strict=True)


def partition_text(value: Any) -> str | None:
    """Return a partition value as Delta stores it. An empty text is stored as null, as in every implementation."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def partition_directory(values: Mapping[str, Any]) -> str:
    """Return the directory of files with these partition values. Readers take the values from the commit."""
    texts = {name: partition_text(value) for name, value in values.items()}
    return "/".join(
        f"{_plain(name)}={'__HIVE_DEFAULT_PARTITION__' if text is None else _plain(text)}"
        for name, text in texts.items()
    )


def _plain(text: str) -> str:
    return text if set(text) <= _PLAIN else quote(text, safe="").replace("%", "_")[:100]
