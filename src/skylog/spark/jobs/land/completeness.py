"""Whether an increment was written as a whole; nothing is committed before that is known.

An increment is whole if each partition's rows, parsed and unparsed, have every offset of its range. Where offsets are
missing, the log itself is asked: compaction, transactions and retention leave offsets without a record. Then the rows
must have the offsets that the log has. These come from tasks to the driver without touching a disk.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as F  # noqa: N812  # the name that everybody gives it

from skylog.model import TopicPartition
from skylog.spark.jobs.increments import Increment
from skylog.spark.jobs.land.errors import TableError
from skylog.spark.jobs.land.staged import StagedFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BITS: Final = (1 << 64) - 1


class OffsetSet(NamedTuple):
    """Offsets by their number and their sum, in 64 bits: enough to tell two sets of one range apart."""

    size: int = 0
    total: int = 0

    @classmethod
    def of_range(cls, start_offset: int, end_offset: int) -> OffsetSet:
        size = max(end_offset - start_offset, 0)
        return cls(size, (start_offset + end_offset - 1) * size // 2 & _BITS)

    def joined(self, size: int, total: int) -> OffsetSet:
        return OffsetSet(self.size + size, self.total + total & _BITS)


def is_whole(files: Mapping[str, Sequence[StagedFile]], increment: Increment, records: DataFrame) -> bool:
    """Whether `files`, by topic, have all of `records`. False if the log has changed since: write it again.

    Raises TableError if records are in the log that are not in the files.
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
                f"{key}: {logged[key].size:,} records are in the log from offset {increment.start[key]} up to "
                f"{increment.end[key]}, and {written[key].size:,} were written; nothing was committed, run the "
                "job again"
            )
    return all(written[key] == logged[key] for key in open_keys)


def offsets_in(files: Mapping[str, Iterable[StagedFile]]) -> defaultdict[TopicPartition, OffsetSet]:
    found: defaultdict[TopicPartition, OffsetSet] = defaultdict(OffsetSet)
    for topic, staged in files.items():
        for file in staged:
            for each in file.tallies:
                key = TopicPartition(topic, each.partition)
                found[key] = found[key].joined(each.messages, each.offset_sum)
    return found


def offsets_of(records: DataFrame) -> defaultdict[TopicPartition, OffsetSet]:
    """What the log has, read for this."""
    total = F.sum(F.col("offset").cast("decimal(20,0)"))  # a sum of longs could be too large for one
    rows = records.groupBy("topic", "partition").agg(F.count("*").alias("messages"), total.alias("total")).collect()
    found: defaultdict[TopicPartition, OffsetSet] = defaultdict(OffsetSet)
    for row in rows:
        found[TopicPartition(row.topic, row.partition)] = OffsetSet().joined(row.messages, int(row.total))
    return found
