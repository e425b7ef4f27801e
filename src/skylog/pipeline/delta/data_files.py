"""Writes the rows of a DataFrame as Parquet files, in Spark's tasks. They are in no table until a commit adds them.

A task writes its files and returns a description of each, which Spark delivers to the driver. Files of attempts that
failed are never described. They stay behind until `vacuum` deletes them.
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
REPORT: Final = "table STRING, path STRING, size_bytes LONG, rows LONG, partition STRING, stats STRING, summary STRING"
_REPORTED: Final = pa.schema(
    [(name, pa.string() if kind == "STRING" else pa.int64()) for name, kind in map(str.split, REPORT.split(", "))]
)
_PLAIN: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")

_MOST_REOPENED: Final = 8
_GIVEN_UP: Final = ""
"""The path that a task returns if it has given up."""

Summarise = Callable[[pa.Table], Any]
"""Returns facts about rows of a file, as JSON values. They come back with the description of the file."""


@dataclass(frozen=True)
class FileLayout:
    """How rows become files. `max_rows` limits a file if set. `summarise` is called with each part of a file.

    If the rows belong to several tables, `table_by` is the column with the name of the table, and the location is that
    of the directory of these tables.

    Rows with the same values in `split_by` are expected one after the other. With `open_files` above 1 they need not
    be: a task has that many files open, and gives up if they are not enough.
    """

    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    file_bytes: int = DEFAULT_FILE_BYTES
    max_rows: int | None = None
    summarise: Summarise | None = None
    table_by: str | None = None
    open_files: int = 1

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
    return written_files(report, storage) or []


def written_files(report: DataFrame, storage: Storage) -> list[WrittenFile] | None:
    """Run the tasks of a DataFrame of FileTask, with the columns of REPORT, and return their files.

    Return None if a task has given up. The files of the others are deleted.
    """
    rows = report.collect()
    files = [_written_file(row.asDict()) for row in rows if row["path"] != _GIVEN_UP]
    _check_seen(files, storage)
    if len(files) == len(rows):
        return files
    opened = storage.file_system()
    for file in files:
        opened.delete_file(f"{file.table}/{file.path}".lstrip("/"))
    return None


def _report(frame: DataFrame, storage: Storage, layout: FileLayout) -> DataFrame:
    if order := (*layout.split_by, *layout.sort_by):
        frame = frame.sortWithinPartitions(*(f"`{name}`" for name in order))
    return frame.mapInArrow(FileTask(storage, layout), REPORT)


def write_batches(batches: Iterable[pa.RecordBatch], storage: Storage, layout: FileLayout) -> list[WrittenFile]:
    """Write rows without Spark. They must be sorted by `split_by`."""
    return [_written_file(row) for found in FileTask(storage, layout)(batches) for row in found.to_pylist()]


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
class FileTask:
    """The function of a task: writes its batches, which `convert` changes before. A class, because Spark pickles it."""

    storage: Storage
    layout: FileLayout
    convert: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]] | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = _TaskWriter(self.storage, self.layout)
        for batch in batches if self.convert is None else self.convert(batches):
            if batch.num_rows and not writer.write(batch):
                writer.discard()
                break
        writer.close()
        if writer.finished:
            yield pa.RecordBatch.from_pylist(writer.finished, _REPORTED)


class _TaskWriter:
    """Writes batches to files, each of rows with the same values in the columns `split_by`."""

    def __init__(self, storage: Storage, layout: FileLayout) -> None:
        self.finished: list[dict[str, Any]] = []
        self._storage = storage
        self._layout = layout
        self._files = storage.file_system()
        self._open: dict[tuple[Any, ...], _OpenFile] = {}  # the least recently used first
        self._evicted: set[tuple[Any, ...]] = set()
        self._reopened = 0

    def write(self, batch: pa.RecordBatch) -> bool:
        """Return False to give up: the rows are in no order, so that there would be many small files."""
        columns = [batch.column(batch.schema.get_field_index(name)) for name in self._layout.split_by]
        data = batch.drop_columns(list(self._layout.split_by)) if columns else batch
        for start, end in _runs(columns, batch.num_rows):
            self._append(tuple(self._values(columns, start)), data.slice(start, end - start))
        return self._layout.open_files == 1 or self._reopened <= _MOST_REOPENED

    def _values(self, columns: Sequence[pa.Array], row: int) -> Iterator[Any]:
        """Yield the values of `split_by` in a row. Raises ValueError for a date that no reader could parse."""
        for name, column in zip(self._layout.split_by, columns, strict=True):
            try:
                yield column[row].as_py()
            except (OverflowError, ValueError) as error:
                raise ValueError(
                    f"a row has a {name} outside of the years 1 to 9999, which cannot be a partition; leave it out"
                ) from error

    def _append(self, values: tuple[Any, ...], rows: pa.RecordBatch) -> None:
        limit = self._layout.max_rows
        while rows.num_rows:
            file = self._file(values, rows.schema)
            room = rows.num_rows if limit is None else limit - file.rows
            file.append(rows.slice(0, room))
            rows = rows.slice(min(room, rows.num_rows))
            is_full = limit is not None and file.rows >= limit
            if is_full or file.written_bytes >= self._layout.file_bytes:
                self._close(values)
        if sum(file.group_bytes for file in self._open.values()) >= _GROUP_BYTES:
            max(self._open.values(), key=lambda file: file.group_bytes).flush()

    def _file(self, values: tuple[Any, ...], schema: pa.Schema) -> _OpenFile:
        file = self._open.pop(values, None)
        if file is None:
            if len(self._open) == self._layout.open_files:
                oldest = next(iter(self._open))
                self._evicted.add(oldest)
                self._close(oldest)
            self._reopened += values in self._evicted
            file = self._new(values, schema)
        self._open[values] = file
        return file

    def _new(self, values: tuple[Any, ...], schema: pa.Schema) -> _OpenFile:
        folder = "/".join(filter(None, (self._table(values), partition_directory(self._partition(values)))))
        if self._storage.is_local:
            self._files.create_dir(folder or "/", recursive=True)
        path = f"{folder}/part-{uuid.uuid4().hex}.parquet".lstrip("/")
        return _OpenFile(self._files, path, schema, self._layout)

    def _table(self, values: tuple[Any, ...]) -> str:
        return "" if self._layout.table_by is None else values[0]

    def _partition(self, values: tuple[Any, ...]) -> dict[str, Any]:
        names = self._layout.partition_by
        return dict(zip(names, values[len(values) - len(names) :], strict=True))

    def close(self) -> None:
        for values in list(self._open):
            self._close(values)

    def _close(self, values: tuple[Any, ...]) -> None:
        file = self._open.pop(values)
        footer, size_bytes = file.close()
        self._storage.sync(file.path)
        table = self._table(values)
        partition = {name: partition_text(value) for name, value in self._partition(values).items()}
        self.finished.append(
            {
                "table": table,
                "path": file.path.removeprefix(f"{table}/"),
                "size_bytes": size_bytes,
                "rows": footer.num_rows,
                "partition": json.dumps(partition),
                "stats": statistics(footer),
                "summary": json.dumps(file.summaries),
            }
        )

    def discard(self) -> None:
        """Delete all files, and return that the task has given up."""
        self.close()
        for file in self.finished:
            self._files.delete_file(f"{file['table']}/{file['path']}".lstrip("/"))
        self.finished = [{**dict.fromkeys(self.finished[0]), "path": _GIVEN_UP}]


class _OpenFile:
    """A Parquet file being written. Rows are collected to row groups."""

    def __init__(self, files: Any, path: str, schema: pa.Schema, layout: FileLayout) -> None:
        self.path = path
        self.rows = 0
        self.summaries: list[Any] = []
        self._summarise = layout.summarise
        self._max_group_bytes = min(_GROUP_BYTES, 2 * layout.file_bytes)  # the size of a file is known after a group
        self._group: list[pa.RecordBatch] = []
        self.group_bytes = 0
        self._out = files.open_output_stream(path)
        self._writer = pq.ParquetWriter(self._out, schema.remove_metadata(), compression=CODEC)

    @property
    def written_bytes(self) -> int:
        return int(self._out.tell())

    def append(self, rows: pa.RecordBatch) -> None:
        self.rows += rows.num_rows
        self._group.append(rows)
        self.group_bytes += rows.nbytes
        if self.group_bytes >= self._max_group_bytes:
            self.flush()

    def flush(self) -> None:
        if self._group:
            table = pa.Table.from_batches(self._group).replace_schema_metadata(None)
            self._writer.write_table(table, row_group_size=table.num_rows)
            if self._summarise is not None:
                self.summaries.append(self._summarise(table))
            self._group, self.group_bytes = [], 0

    def close(self) -> tuple[pq.FileMetaData, int]:
        self.flush()
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
