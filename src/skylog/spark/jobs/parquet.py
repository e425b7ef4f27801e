"""Parquet written and read by Spark in directories that the driver shares with its executors.

A write is checked: the driver must see the rows that the tasks have written. Where executors have a disk of their own,
each task succeeds, and Spark as well, and the driver finds a directory without files.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812  # the name that everybody gives it

from skylog.errors import SkylogError
from skylog.spark.jobs.directories import spark_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS: Final = "rows"
_NO_PATTERNS: Final = {"__globPaths__": "false"}  # a bracket in a path is a bracket


class LostRowsError(SkylogError):
    """Rows that tasks have written and the driver does not see. Nothing of them is kept."""

    def __init__(self, path: Path, written: int, seen: int) -> None:
        super().__init__(
            f"{path}: tasks wrote {written:,} rows, and the driver sees {seen:,} of them, so nothing was committed: "
            "driver and executors must have the same file system mounted there; name a directory of such a one"
        )


def write_parquet(
    frame: DataFrame, path: Path, *, partitioned_by: Sequence[str] = (), options: Mapping[str, Any] | None = None
) -> int:
    """Write `frame` to `path`, where nothing may be yet; how many rows there are. Raises LostRowsError.

    The rows are counted in the tasks that write. Spark counts those tasks once, however often they were tried.
    """
    written = Observation()
    observed = frame.observe(written, F.count(F.lit(1)).alias(_ROWS))
    observed.write.options(**(options or {})).partitionBy(*partitioned_by).parquet(spark_path(path))
    rows: int = written.get[_ROWS]
    seen = _seen(path)
    if seen != rows:
        shutil.rmtree(path, ignore_errors=True)
        raise LostRowsError(path, rows, seen)
    return rows


def read_parquet(spark: SparkSession, *paths: Path, **options: str) -> DataFrame:
    """What `write_parquet` has written to the paths."""
    return spark.read.options(**_NO_PATTERNS, **options).parquet(*map(spark_path, paths))


def _seen(path: Path) -> int:
    try:
        return sum(pq.read_metadata(file).num_rows for file in path.rglob("*.parquet"))
    except (OSError, pa.ArrowInvalid) as error:
        raise SkylogError(f"{path}: a file that a task has written cannot be read ({error})") from error
