"""Small files into large ones, hour by hour. The rows stay the same; see `table` for how readers come to the new files.

An hour that nothing has landed in for a while is merged as a whole. One that is still written to is merged when it has
many very small files, and only those, so that no row is rewritten again and again.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from skylog.spark.jobs.land.commit import DataFile
from skylog.spark.jobs.land.files import remove_tree
from skylog.spark.jobs.land.staged import StagedFile
from skylog.spark.jobs.land.table import Table

logger = logging.getLogger(__name__)

CODEC: Final = "zstd"
SMALL: Final = 0.75  # of the target; larger files are left alone
VERY_SMALL: Final = 1 / 16
MANY_FILES: Final = 64
_ROW_GROUP_BYTES: Final = 64 << 20
_ROW_GROUP_ROWS: Final = 1 << 20
_READ_ROWS: Final = 1 << 16


@dataclass(frozen=True)
class MergeSettings:
    """When files are merged, and how long those that were replaced stay for readers that were given them before."""

    after_ms: int = 10 * 60_000
    grace_ms: int = 60 * 60_000
    every_s: float = 10.0


def to_merge(files: Sequence[DataFile], file_size_bytes: int, now_ms: int, after_ms: int) -> list[DataFile]:
    """Which files of one hour; none, or two at least."""
    is_quiet = max(file.landed_ms for file in files) + after_ms <= now_ms
    limit = file_size_bytes * (SMALL if is_quiet else VERY_SMALL)
    small = [file for file in files if file.size_bytes < limit]
    return small if len(small) >= (2 if is_quiet else MANY_FILES) else []


class Merger:
    """Merges the files of tables; one thread at a time."""

    def __init__(self, tables: Sequence[Table], file_size_bytes: int, settings: MergeSettings) -> None:
        self._file_size_bytes = file_size_bytes
        self._settings = settings
        self._tables = [table for table in tables if _check(table)]

    def run(self, stop: Event | None = None) -> int:
        """Merge what is due; how many files were replaced. Between two hours it looks whether it is to stop."""
        replaced = 0
        for table in self._tables:
            for files in table.current().values():
                if stop is not None and stop.is_set():
                    return replaced
                now_ms = table.clock.now_ms()
                small = to_merge(files, self._file_size_bytes, now_ms, self._settings.after_ms)
                if small:
                    self._merge(table, small)
                    replaced += len(small)
            table.remove_replaced(self._settings.grace_ms)
        return replaced

    def _merge(self, table: Table, files: Sequence[DataFile]) -> None:
        staging = table.staging / uuid.uuid4().hex
        staging.mkdir()
        try:
            merged = rewrite(table.files, files, staging, self._file_size_bytes)
            table.replace(files, merged)
        finally:
            remove_tree(staging)
        logger.info("%s: %d files of %s became %d", table.path, len(files), files[0].directory, len(merged))


def _check(table: Table) -> bool:
    if table.can_merge():
        return True
    logger.warning(
        "%s: small files are not merged, because this file system cannot exchange two directories in one step",
        table.path,
    )
    return False


@contextmanager
def merging(merger: Merger, every_s: float | None, stop: Event) -> Iterator[None]:
    """Merge every so often beside what happens in the block, or, if None, once after it."""
    if every_s is None:
        yield
        merger.run(stop)
        return
    ending = Event()
    thread = Thread(target=_merge_until, args=(merger, every_s, ending), name="skylog-merging", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def _merge_until(merger: Merger, every_s: float, ending: Event) -> None:
    while not ending.wait(every_s):
        try:
            merger.run(ending)
        except Exception:
            logger.exception("small files could not be merged; they stay as they are, and it is tried again")


def rewrite(root: Path, files: Sequence[DataFile], staging: Path, file_size_bytes: int) -> list[StagedFile]:
    """The rows of `files`, which are of one directory, in files of about the target size: fewer than before."""
    total_rows = sum(file.rows for file in files)
    count = max(sum(file.size_bytes for file in files) // file_size_bytes, 1)
    rows_per_file = -(-total_rows // count)
    paths = [root / file.path for file in files]
    schema = _unified(paths)
    merged: list[StagedFile] = []
    source = _Rows(paths, schema)
    while source.rows_left:
        path = staging / f"{len(merged)}.parquet"
        rows = 0
        with pq.ParquetWriter(path, schema, compression=CODEC) as writer:
            for table in source.take(rows_per_file):
                writer.write_table(table, row_group_size=_ROW_GROUP_ROWS)
                rows += table.num_rows
        merged.append(StagedFile(path, files[0].directory, rows))
    assert sum(file.rows for file in merged) == total_rows, (merged, total_rows)
    return merged


class _Rows:
    """The rows of several files, in order, a row group's worth at a time."""

    def __init__(self, paths: Sequence[Path], schema: pa.Schema) -> None:
        self.rows_left = sum(pq.read_metadata(path).num_rows for path in paths)
        self._batches = (_conform(batch, schema) for path in paths for batch in _batches(path))
        self._rest: pa.RecordBatch | None = None

    def take(self, wanted: int) -> Iterator[pa.Table]:
        """The next `wanted` rows, or those that are left."""
        wanted = min(wanted, self.rows_left)
        self.rows_left -= wanted
        group: list[pa.RecordBatch] = []
        while wanted:
            batch = next(self._batches) if self._rest is None else self._rest
            group.append(batch.slice(0, wanted))
            self._rest = batch.slice(wanted) if batch.num_rows > wanted else None
            wanted -= group[-1].num_rows
            if not wanted or sum(each.nbytes for each in group) >= _ROW_GROUP_BYTES:
                yield pa.Table.from_batches(group)
                group = []


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(_READ_ROWS)


def _unified(paths: Sequence[Path]) -> pa.Schema:
    """The columns of all files, those first that were there first. A table never changes the type of one."""
    return pa.unify_schemas([pq.read_schema(path).remove_metadata() for path in paths])


def _conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    there = set(batch.schema.names)
    columns = [batch[field.name] if field.name in there else pa.nulls(batch.num_rows, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
