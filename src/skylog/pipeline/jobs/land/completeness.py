"""Checks that an increment was written completely, before it is committed.

An increment is complete if the rows of each partition, parsed and unparsed, have every offset of its range. If offsets
are missing, the log is read again, because compaction, transactions and retention leave offsets without a record. The
rows must then have the same offsets as the log. Tasks send those to the driver directly, not through files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from skylog.model import TopicPartition
from skylog.pipeline.delta.data_files import WrittenFile
from skylog.pipeline.delta.errors import TableError
from skylog.pipeline.increments import Increment
from skylog.pipeline.jobs.land.tallies import tallies

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BITS: Final = (1 << 64) - 1


class OffsetSet(NamedTuple):
    """A set of offsets as its size and its sum in 64 bits, which is enough to compare sets from one range."""

    size: int = 0
    total: int = 0

    @classmethod
    def of_range(cls, start_offset: int, end_offset: int) -> OffsetSet:
        size = max(end_offset - start_offset, 0)
        return cls(size, (start_offset + end_offset - 1) * size // 2 & _BITS)

    def joined(self, size: int, total: int) -> OffsetSet:
        return OffsetSet(self.size + size, self.total + total & _BITS)


def is_complete(files: Mapping[str, Sequence[WrittenFile]], increment: Increment, records: DataFrame) -> bool:
    """Return whether `files`, by topic, have all `records`. If False, the log has changed: write the increment again.

    Raises TableError if the files lack records of the log.
    """
    written = offsets_in(files)
    open_keys = [
        key for key, start in increment.start.items() if written[key] != OffsetSet.of_range(start, increment.end[key])
    ]
    if not open_keys:
        return True
    logged = offsets_of(records)
    for key in open_keys:
        if written[key].size < logged[key].size:
            raise TableError(
                f"{key}: the log has {logged[key].size:,} records from offset {increment.start[key]} to "
                f"{increment.end[key]}, but {written[key].size:,} were written; nothing was committed, run the "
                "job again"
            )
    return all(written[key] == logged[key] for key in open_keys)


def offsets_in(files: Mapping[str, Iterable[WrittenFile]]) -> defaultdict[TopicPartition, OffsetSet]:
    found: defaultdict[TopicPartition, OffsetSet] = defaultdict(OffsetSet)
    for topic, written in files.items():
        for file in written:
            for each in tallies(file):
                key = TopicPartition(topic, each.partition)
                found[key] = found[key].joined(each.messages, each.offset_sum)
    return found


def offsets_of(records: DataFrame) -> defaultdict[TopicPartition, OffsetSet]:
    """Read the log, and return its offsets."""
    total = F.sum(F.col("offset").cast("decimal(20,0)"))  # the sum can exceed a long
    rows = records.groupBy("topic", "partition").agg(F.count("*").alias("messages"), total.alias("total")).collect()
    found: defaultdict[TopicPartition, OffsetSet] = defaultdict(OffsetSet)
    for row in rows:
        found[TopicPartition(row.topic, row.partition)] = OffsetSet().joined(row.messages, int(row.total))
    return found
