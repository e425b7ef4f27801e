"""Few rows in one task: Spark then plans no shuffle, which takes longer than all other work on a few rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from skylog.pipeline.delta.table_log import TableFile

FEW_OFFSETS: Final = 1_000
"""The most offsets that one task reads for several partitions."""
FEW_BYTES: Final = 8 << 20
"""The largest total size of files that one task reads."""


def are_few(files: Iterable[TableFile]) -> bool:
    """Return whether the files are so small that one task reads them all."""
    return sum(file.size_bytes for file in files) <= FEW_BYTES


def has_one_partition(frame: DataFrame) -> bool:
    """Return whether one task computes all rows. Unknown, and so False, with Spark Connect."""
    found = getattr(frame, "_jdf", None)
    return found is not None and found.queryExecution().executedPlan().outputPartitioning().numPartitions() == 1
