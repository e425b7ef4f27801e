"""Reads versions of Delta tables as DataFrames, without a jar.

Spark itself reads files on a mounted disk, and skips files and columns as usual. Files in an object store are read by
pyarrow in Spark's Python workers, because Spark needs a jar for those.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from pyspark.sql.types import StringType, StructType

from skylog.pipeline.delta.storage import Storage
from skylog.pipeline.delta.table_log import TableFile, TableLog
from skylog.spark.schema import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE: Final = "_file"
"""The column with the path of the file, relative to the table."""
_NO_PATTERNS: Final = {"__globPaths__": "false"}  # do not treat brackets in a path as a pattern
_BATCH_ROWS: Final = 1 << 16
_TASKS_PER_CORE: Final = 2


def read_files(
    spark: SparkSession, log: TableLog, files: Sequence[TableFile] | None = None, *, with_file: bool = False
) -> DataFrame:
    """Return the rows of files of a version, by default all. `with_file` adds the column FILE."""
    log.check_readable()
    if files is None:
        files = log.files()
    schema = log.schema
    if not files:
        empty = spark.createDataFrame([], schema)
        return empty.withColumn(FILE, F.lit("")) if with_file else empty
    if log.storage.is_local and all(_is_plain(file) for file in files):
        return _read_by_spark(spark, log, schema, files, with_file=with_file)
    return _read_by_workers(spark, log, schema, files, with_file=with_file)


def _is_plain(file: TableFile) -> bool:
    """Return whether the directories of the file say its partition values, as Spark expects it."""
    return file.path.rpartition("/")[0] == "/".join(f"{name}={text}" for name, text in file.partition_text.items())


def _read_by_spark(
    spark: SparkSession, log: TableLog, schema: StructType, files: Sequence[TableFile], *, with_file: bool
) -> DataFrame:
    root = log.storage.uri
    reader = spark.read.schema(schema).options(basePath=f"file:{root}", **_NO_PATTERNS)
    rows = reader.parquet(*(f"file:{root}/{file.path}" for file in files))
    ordered = rows.select(*(F.col(f"`{name}`") for name in schema.names))
    if not with_file:
        return ordered
    path = F.element_at(F.split("_metadata.file_path", "/"), -1)  # names of files are unique
    pairs = [(file.path.rpartition("/")[2], file.path) for file in files]
    names = spark.createDataFrame(pairs, f"_name STRING, {FILE} STRING")
    return rows.withColumn("_name", path).join(F.broadcast(names), "_name").select(*schema.names, FILE)


def _read_by_workers(
    spark: SparkSession, log: TableLog, schema: StructType, files: Sequence[TableFile], *, with_file: bool
) -> DataFrame:
    tasks = min(len(files), _TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    numbered = spark.createDataFrame([(number,) for number in range(len(files))], "number INT").repartition(tasks)
    wanted = StructType([*schema.fields])
    if with_file:
        wanted = wanted.add(FILE, StringType())
    values = [{**file.partition, FILE: file.path} for file in files]
    task = _Task(log.storage, [file.path for file in files], values, arrow_schema(wanted))
    return numbered.mapInArrow(task, wanted)


@dataclass(frozen=True)
class _Task:
    """The function of a task: reads the files with the numbers that it gets. `values` are constant columns by file."""

    storage: Storage
    paths: Sequence[str]
    values: Sequence[dict[str, Any]]
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = self.storage.file_system()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with files.open_input_file(self.paths[number]) as opened, pq.ParquetFile(opened) as found:
                    for rows in found.iter_batches(_BATCH_ROWS):
                        yield self._conform(rows, self.values[number])

    def _conform(self, rows: pa.RecordBatch, values: dict[str, Any]) -> pa.RecordBatch:
        there = set(rows.schema.names)
        columns = [
            rows.column(field.name).cast(field.type)
            if field.name in there
            else pa.repeat(pa.scalar(values.get(field.name), field.type), rows.num_rows)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)
