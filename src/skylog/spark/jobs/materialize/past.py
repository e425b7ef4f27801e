"""The table as it was: from the changes that are kept beside it, whatever the topic has forgotten since."""

from __future__ import annotations

from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # as everybody calls them

from skylog.errors import SkylogError
from skylog.model import TopicPartition
from skylog.spark.jobs.increments import Offsets
from skylog.spark.jobs.materialize.changes import materialize
from skylog.spark.jobs.materialize.job import CHANGES, GAPS
from skylog.spark.jobs.parquet import read_parquet
from skylog.spark.jobs.versioned_table import Version, newest_version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class AsOfError(SkylogError):
    """A state of the table that it cannot tell."""


def as_of(spark: SparkSession, path: Path, offsets: Offsets) -> DataFrame:
    """The rows after the records before `offsets`, which name every partition of the topic.

    Raises AsOfError where the table cannot know: it has not come so far, has no history, or the topic had been
    compacted there before it was read.
    """
    version = _version(path)
    _check(version, offsets, path)
    is_before = [
        (F.col("_partition") == key.partition) & (F.col("_offset") < offset) for key, offset in offsets.items()
    ]
    return materialize(_history(spark, version, path).where(reduce(or_, is_before)))


def offsets_at(spark: SparkSession, path: Path, time_ms: int) -> dict[TopicPartition, int]:
    """For each partition the first offset whose record is of this time or later, or the end of what the table has."""
    version = _version(path)
    later = _history(spark, version, path).where(F.unix_millis("_timestamp") >= time_ms)
    firsts = {row[0]: row[1] for row in later.groupBy("_partition").agg(F.min("_offset")).collect()}
    return {key: firsts.get(key.partition, end) for key, end in version.offsets.items()}


def _version(path: Path) -> Version:
    version = newest_version(path)
    if version is None:
        raise AsOfError(f"{path} holds no table yet")
    if not version.facts["history"]:
        raise AsOfError(f"{path} is kept without its history, so only its newest state is known")
    return version


def _history(spark: SparkSession, version: Version, path: Path) -> DataFrame:
    """All changes up to `version`; later ones, and what a crash has left, are not looked at."""
    found = sorted(each for each in (path / CHANGES).iterdir() if int(each.name) <= version.number)
    return read_parquet(spark, *found, mergeSchema="true")


def _check(version: Version, offsets: Offsets, path: Path) -> None:
    if offsets.keys() != version.offsets.keys():
        asked, known = (", ".join(map(str, sorted(keys))) for keys in (offsets, version.offsets))
        raise AsOfError(f"as of offsets of {asked}: name each partition of the table, which are {known}")
    for key, offset in offsets.items():
        if not 0 <= offset <= version.offsets[key]:
            raise AsOfError(f"as of offset {offset} of {key}: {path} has offsets 0 to {version.offsets[key]}")
        for start, end in version.facts[GAPS].get(str(key.partition), []):
            if start < offset < end:
                raise AsOfError(
                    f"as of offset {offset} of {key}: records between {start} and {end} were no longer in the log when "
                    f"it was read (compaction, retention); offsets up to {start}, and from {end} on, can be told"
                )
