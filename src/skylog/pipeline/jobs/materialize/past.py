"""Earlier states of the table, from its stored changes, which the topic may have deleted since."""

from __future__ import annotations

import os
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from skylog.errors import SkylogError
from skylog.model import TopicPartition
from skylog.pipeline.increments import Offsets
from skylog.pipeline.jobs.materialize.changes import materialize
from skylog.pipeline.jobs.materialize.job import GAP_END, changes_of
from skylog.pipeline.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class AsOfError(SkylogError):
    """The state of the table at these offsets is unknown."""


def as_of(spark: SparkSession, path: str | os.PathLike[str], offsets: Offsets) -> DataFrame:
    """Return the rows of the table after the records before `offsets`, which must name every partition of the topic.

    Raises AsOfError if the state is unknown: the table has not reached the offsets, it has no history, or the topic
    was compacted there before it was read.
    """
    topics = {key.topic for key in offsets}
    ends, history = _history(spark, path, topics)
    _check(Table(path).target, ends, offsets)
    _check_gaps(history, offsets)
    is_before = [
        (F.col("_partition") == key.partition) & (F.col("_offset") < offset) for key, offset in offsets.items()
    ]
    return materialize(_changes(history).where(reduce(or_, is_before)))


def offsets_at(
    spark: SparkSession, path: str | os.PathLike[str], topic: str, time_ms: int
) -> dict[TopicPartition, int]:
    """Return, for each partition, the first offset at or after a time, or the table's end offset if there is none."""
    ends, history = _history(spark, path, {topic})
    later = _changes(history).where(F.unix_millis("_timestamp") >= time_ms)
    firsts = {row[0]: row[1] for row in later.groupBy("_partition").agg(F.min("_offset")).collect()}
    return {key: min(firsts.get(key.partition, end), end) for key, end in ends.items()}


def _history(
    spark: SparkSession, path: str | os.PathLike[str], topics: set[str]
) -> tuple[dict[TopicPartition, int], DataFrame]:
    """Return the end offsets of the table, and its changes and gaps. There may be later ones, left by a crash."""
    table = Table(path)
    if not table.exists():
        raise AsOfError(f"there is no table in {table.target} yet")
    if not changes_of(table).exists():
        raise AsOfError(f"{table.target} has no history (--no-history), so only its newest state is known")
    return table.offsets(topics), changes_of(table).read(spark)


def _changes(history: DataFrame) -> DataFrame:
    return history.where(F.col(GAP_END).isNull()).drop(GAP_END)


def _check(where: str, ends: Offsets, offsets: Offsets) -> None:
    if offsets.keys() != ends.keys():
        given, known = (", ".join(map(str, sorted(keys))) for keys in (offsets, ends))
        raise AsOfError(f"offsets are given for {given}: name every partition of the table, which are {known}")
    for key, offset in offsets.items():
        if not 0 <= offset <= ends[key]:
            raise AsOfError(f"offset {offset} of {key}: {where} has offsets 0 to {ends[key]}")


def _check_gaps(history: DataFrame, offsets: Offsets) -> None:
    gaps = history.where(F.col(GAP_END).isNotNull()).select("_partition", "_offset", GAP_END).collect()
    for partition, start, end in gaps:
        for key, offset in offsets.items():
            if key.partition == partition and start < offset < end:
                raise AsOfError(
                    f"offset {offset} of {key}: records between {start} and {end} had been deleted from the log before "
                    f"it was read (compaction, retention); use an offset up to {start}, or from {end}"
                )
