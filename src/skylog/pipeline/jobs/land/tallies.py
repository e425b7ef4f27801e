"""Counts the records in data files: for the check of completeness, and for the audit.

Tasks count what they write, file by file, so that the driver does not read the files again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from skylog.audit import DEFAULT_WINDOW_MS, Count
from skylog.audit.counts import WindowCounts, fold
from skylog.pipeline.delta.data_files import WrittenFile
from skylog.pipeline.delta.errors import TableError
from skylog.pipeline.jobs.land.transform import OFFSET, PARTITION, SIZE_BYTES, TIMESTAMP

MAX_COUNTS: Final = 1000
"""The maximum of counts per report. With more windows, adjacent ones are combined."""


class Tally(NamedTuple):
    """Counts of the records in a file for one partition and one window of the audit."""

    partition: int
    window: int
    messages: int
    size_bytes: int
    first_offset: int
    last_offset: int
    offset_sum: int


@dataclass(frozen=True, slots=True)
class CommittedRange:
    """The offsets of one partition in a commit, from `start_offset` to `end_offset` (exclusive), and their counts."""

    partition: int
    start_offset: int
    end_offset: int
    counts: Sequence[Count]

    def to_json(self) -> dict[str, Any]:
        counts = [[row.start_ms, row.end_ms, row.messages, row.size_bytes] for row in self.counts]
        return {
            "partition": self.partition,
            "start_offset": self.start_offset,
            "end_offset": self.end_offset,
            "counts": counts,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> CommittedRange:
        counts = [Count(*row) for row in found["counts"]]
        return cls(found["partition"], found["start_offset"], found["end_offset"], counts)


def summarise(rows: pa.Table) -> list[list[int]]:
    """Return the tallies of rows, in a task."""
    time_us = np.asarray(rows[TIMESTAMP].cast(pa.int64()))
    counted: Any = pa.table(
        {
            "partition": rows[PARTITION],
            "window": np.floor_divide(time_us, DEFAULT_WINDOW_MS * 1000),  # rounds down, before 1970 too
            "size": rows[SIZE_BYTES],
            "offset": rows[OFFSET],
        }
    )
    added = [("size", "count"), ("size", "sum"), ("offset", "min"), ("offset", "max"), ("offset", "sum")]
    names = ("partition", "window", "size_count", "size_sum", "offset_min", "offset_max", "offset_sum")
    found = counted.group_by(["partition", "window"]).aggregate(added).to_pylist()
    return [[row[name] for name in names] for row in found]


def tallies(file: WrittenFile) -> list[Tally]:
    return [Tally(*row) for part in file.summaries for row in part]


def count_ranges(
    topic: str, files: Iterable[WrittenFile], starts: Mapping[int, int], ends: Mapping[int, int]
) -> list[CommittedRange]:
    """Return the counts by partition. Raises TableError if a record is outside the increment."""
    counts = {partition: WindowCounts(DEFAULT_WINDOW_MS) for partition in starts}
    for file in files:
        for each in tallies(file):
            at = each.partition
            if at not in starts or each.first_offset < starts[at] or each.last_offset >= ends[at]:
                raise TableError(
                    f"{topic}-{at}: {file.path} has offsets {each.first_offset} to {each.last_offset}, which are "
                    "outside the increment; nothing was committed"
                )
            row = counts[at].row(each.window, each.window)
            row[0] += each.messages
            row[1] += each.size_bytes
    return [
        CommittedRange(partition, starts[partition], ends[partition], fold(counts[partition].counts(), MAX_COUNTS))
        for partition in sorted(starts)
    ]
