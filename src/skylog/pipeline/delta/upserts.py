"""Upserts: new rows replace the rows with the same key. Only the files that have such rows are rewritten.

Files that cannot have a key of the new rows are ruled out by the bounds of their keys. The keys of the others are read,
to find the files that have one: by the driver if files and keys are few, because it has read them before Spark has
planned a join, and by Spark otherwise. New files are sorted by key, so that bounds stay narrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from skylog.pipeline.delta.changed_keys import ChangedKeys
from skylog.pipeline.delta.reading import FILE, read_files
from skylog.pipeline.delta.table_log import TableFile, TableLog
from skylog.pipeline.one_task import are_few, has_one_partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ORDERED: Final = (int, str)
_FEW_ROWS: Final = 16_000_000
_MOST_RANGES: Final = 32


def touched_files(log: TableLog, keys: ChangedKeys) -> list[TableFile]:
    """Return the files of the table that have a row with one of the keys."""
    files = log.files()
    if not files or (keys.few is not None and not keys.few.num_rows):
        return []
    candidates = _candidates(files, keys)
    if keys.few is not None and _is_sooner_read_here(log, candidates, keys):
        log.check_readable()
        return [file for file in candidates if _has_one_of(log, file, keys.few)]
    return _touched_by_spark(log, candidates, keys)


def _candidates(files: Sequence[TableFile], keys: ChangedKeys) -> list[TableFile]:
    """Rule out files by the range of the first key column."""
    column = keys.columns[0]
    if not any(isinstance(file.smallest.get(column), _ORDERED) for file in files):
        return list(files)
    least, most = keys.bounds()
    return [file for file in files if _overlaps(file, column, least, most)]


def _overlaps(file: TableFile, column: str, least: Any, most: Any) -> bool:
    smallest, largest = file.smallest.get(column), file.largest.get(column)
    if not isinstance(smallest, type(most)) or (largest is not None and not isinstance(largest, type(least))):
        return True
    return smallest <= most and (largest is None or least <= largest)


def _is_sooner_read_here(log: TableLog, files: Sequence[TableFile], keys: ChangedKeys) -> bool:
    """Return whether the driver reads the keys of the files sooner than Spark. Partition columns are not in files."""
    if set(keys.columns) & set(log.partition_by):
        return False
    return are_few(files) or (
        keys.are_numbers and sum(_FEW_ROWS if f.rows is None else f.rows for f in files) < _FEW_ROWS
    )


def _has_one_of(log: TableLog, file: TableFile, keys: pa.Table) -> bool:
    """Return whether a file has one of the keys. Reads its key columns in this process."""
    with log.storage.file_system().open_input_file(file.path) as opened:
        rows = pq.read_table(opened, columns=keys.column_names)
    if len(rows.column_names) < len(keys.column_names):
        return False  # from before a column of the key was added, so it is null in all rows
    same = rows.cast(pa.schema([(name, keys.schema.field(name).type) for name in rows.column_names]))
    return bool(same.join(keys, keys=keys.column_names, join_type="left semi").num_rows)


def _touched_by_spark(log: TableLog, candidates: Sequence[TableFile], keys: ChangedKeys) -> list[TableFile]:
    if not candidates:
        return []
    by_path = {file.path: file for file in candidates}
    rows = read_files(keys.rows.sparkSession, log, candidates, with_file=True).select(*_columns(keys), FILE)
    found = rows.join(keys.rows, list(keys.columns), "left_semi").select(FILE).distinct().collect()
    return [by_path[row[0]] for row in found]


def upserted(
    log: TableLog, touched: Sequence[TableFile], changes: DataFrame, keys: ChangedKeys, deleted: str | None
) -> DataFrame:
    """Return the rows that replace those of the `touched` files: the unchanged ones, and the changes.

    `changes` has at most one row for each key. Rows whose column `deleted` is true are left out.
    """
    kept = changes if deleted is None else changes.where(~F.coalesce(F.col(f"`{deleted}`"), F.lit(False))).drop(deleted)
    if touched:
        rows, changed = read_files(changes.sparkSession, log, touched), keys.rows
        is_one_task = are_few(touched) and has_one_partition(changes)
        if is_one_task:
            rows, changed = rows.coalesce(1), changed.hint("merge")  # of two sorted partitions, without a broadcast
        elif keys.few is not None:
            changed = F.broadcast(changed)
        kept = rows.join(changed, list(keys.columns), "left_anti").unionByName(kept, allowMissingColumns=True)
        kept = kept.coalesce(1) if is_one_task else kept
    return kept


def splits_of(touched: Sequence[TableFile], keys: ChangedKeys) -> list[Any]:
    """Return values of the first key column that divide the rows into ranges: one for each file, or two for one file.

    Empty if the bounds of the files do not tell, or if the changes are not few: those may lie anywhere.
    """
    column = keys.columns[0]
    bounds: list[tuple[Any, Any]] = [(file.smallest.get(column), file.largest.get(column)) for file in touched]
    is_known = all(isinstance(each, _ORDERED) for both in bounds for each in both)
    if keys.few is None or not is_known or not 0 < len(bounds) <= _MOST_RANGES:
        return []
    least, *others = sorted(smallest for smallest, _ in bounds)
    if not others and isinstance(least, int):
        return [(least + bounds[0][1]) // 2]
    return others


def divided(rows: DataFrame, column: str, splits: Sequence[Any]) -> DataFrame:
    """Give each task the rows between two splits. `repartitionByRange` would read all rows to find its own."""
    number = sum((F.when(F.col(f"`{column}`") >= split, 1).otherwise(0) for split in splits), F.lit(0))
    return rows.repartitionById(len(splits) + 1, number)


def _columns(keys: ChangedKeys) -> list[str]:
    return [f"`{name}`" for name in keys.columns]
