"""Upserts: new rows replace the rows with the same key. Only the files that have such rows are rewritten.

Files that cannot have a key of the new rows are ruled out by the bounds of their keys. The keys of the others are read,
to find the files that have one: by the driver if files and keys are few, because it has read them before Spark has
planned a join, and by Spark otherwise. New files are sorted by key, so that bounds stay narrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from pyspark.sql.types import BinaryType, BooleanType, DateType, IntegralType, StringType

from skylog.pipeline.delta.reading import FILE, read_files
from skylog.pipeline.delta.table_log import TableFile, TableLog
from skylog.pipeline.one_task import are_few, has_one_partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ORDERED: Final = (int, str)
_COMPARABLE: Final = (BinaryType, BooleanType, DateType, IntegralType, StringType)
_FEW_KEYS: Final = 10_000


def touched_files(log: TableLog, changes: DataFrame, key: Sequence[str]) -> list[TableFile]:
    """Return the files of the table that have a row with a key of `changes`."""
    files = log.files()
    if not files:
        return []
    keys = _few_keys(changes, key)
    if keys is None:
        return _touched_by_spark(log, _candidates(files, changes, key[0]), changes, key)
    if not keys.num_rows:
        return []
    candidates = _candidates_of(files, keys)
    if are_few(candidates) and not set(key) & set(log.partition_by):
        log.check_readable()
        return [file for file in candidates if _has_one_of(log, file, keys)]
    return _touched_by_spark(log, candidates, changes, key)


def _few_keys(changes: DataFrame, key: Sequence[str]) -> pa.Table | None:
    """Return the keys of `changes`, or None if they are many or cannot be compared without Spark."""
    chosen = changes.select(*map(_column, key))
    if not all(isinstance(each.dataType, _COMPARABLE) for each in chosen.schema):
        return None
    found = chosen.limit(_FEW_KEYS + 1).toArrow()
    return found if found.num_rows <= _FEW_KEYS else None


def _has_one_of(log: TableLog, file: TableFile, keys: pa.Table) -> bool:
    """Return whether a file has one of the keys. Reads its key columns in this process."""
    with log.storage.file_system().open_input_file(file.path) as opened:
        rows = pq.read_table(opened, columns=keys.column_names)
    if len(rows.column_names) < len(keys.column_names):
        return False  # from before a column of the key was added, so it is null in all rows
    same = rows.cast(pa.schema([(name, keys.schema.field(name).type) for name in rows.column_names]))
    return bool(same.join(keys, keys=keys.column_names, join_type="left semi").num_rows)


def _touched_by_spark(
    log: TableLog, candidates: Sequence[TableFile], changes: DataFrame, key: Sequence[str]
) -> list[TableFile]:
    if not candidates:
        return []
    by_path = {file.path: file for file in candidates}
    rows = read_files(changes.sparkSession, log, candidates, with_file=True).select(*map(_column, key), FILE)
    keys = changes.select(*map(_column, key)).distinct()
    found = rows.join(keys, list(key), "left_semi").select(FILE).distinct().collect()
    return [by_path[row[0]] for row in found]


def upserted(
    log: TableLog, touched: Sequence[TableFile], changes: DataFrame, key: Sequence[str], deleted: str | None
) -> DataFrame:
    """Return the rows that replace those of the `touched` files: the unchanged ones, and the changes.

    `changes` has at most one row for each key. Rows whose column `deleted` is true are left out.
    """
    kept = changes if deleted is None else changes.where(~F.coalesce(F.col(f"`{deleted}`"), F.lit(False))).drop(deleted)
    if touched:
        rows = read_files(changes.sparkSession, log, touched)
        keys = changes.select(*map(_column, key)).distinct()
        is_one_task = are_few(touched) and has_one_partition(changes)
        if is_one_task:
            rows, keys = rows.coalesce(1), keys.hint("merge")  # a merge of two sorted partitions, without a broadcast
        kept = rows.join(keys, list(key), "left_anti").unionByName(kept, allowMissingColumns=True)
        kept = kept.coalesce(1) if is_one_task else kept
    return kept


def _candidates(files: Sequence[TableFile], changes: DataFrame, column: str) -> list[TableFile]:
    """Rule out files by the range of the first key column."""
    bounded = [file for file in files if isinstance(file.smallest.get(column), _ORDERED)]
    if not bounded:
        return list(files)
    (least, most) = changes.agg(F.min(_column(column)), F.max(_column(column))).collect()[0]
    return [file for file in files if _overlaps(file, column, least, most)]


def _candidates_of(files: Sequence[TableFile], keys: pa.Table) -> list[TableFile]:
    """The same for few keys, without Spark."""
    column = keys.column_names[0]
    bounds = pc.min_max(keys[column]).as_py()
    is_ordered = isinstance(bounds["min"], _ORDERED)
    return [file for file in files if not is_ordered or _overlaps(file, column, bounds["min"], bounds["max"])]


def _overlaps(file: TableFile, column: str, least: Any, most: Any) -> bool:
    smallest, largest = file.smallest.get(column), file.largest.get(column)
    if not isinstance(smallest, type(most)) or (largest is not None and not isinstance(largest, type(least))):
        return True
    return smallest <= most and (largest is None or least <= largest)


def _column(name: str) -> Any:
    return F.col(f"`{name}`")
