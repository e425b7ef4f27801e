"""Files that were written and are in no table yet, and what is in them.

The counts of the audit are taken from the finished files, not from what was to be written: they are of what landed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skylog.audit import DEFAULT_WINDOW_MS
from skylog.audit.counts import WindowCounts, fold
from skylog.spark.jobs.land.commit import Landed, Side
from skylog.spark.jobs.land.errors import TableError
from skylog.spark.jobs.land.transform import OFFSET, PARTITION, SIZE_BYTES, TIMESTAMP, TOPIC

MAX_COUNTS: Final = 1000
"""Of a report: an increment over more windows than these is counted by spans of several."""

_BATCH_ROWS: Final = 1 << 18


class Tally(NamedTuple):
    """The records of a file that belong to one partition and one window of the audit."""

    partition: int
    window: int
    messages: int
    size_bytes: int
    first_offset: int
    last_offset: int
    offset_sum: int


@dataclass(frozen=True)
class StagedFile:
    """`directory` is where it belongs: side, date and hour."""

    path: Path
    directory: str
    rows: int
    tallies: Sequence[Tally] = ()


def staged_files(root: Path, side: Side) -> dict[str, list[StagedFile]]:
    """What Spark has written to `root`, partitioned by topic, date and hour; by topic."""
    found: dict[str, list[StagedFile]] = defaultdict(list)
    for path in sorted(root.glob(f"{TOPIC}=*/*/*/*.parquet")):
        topic, *hour, _ = path.relative_to(root).parts
        directory = "/".join([side.value, *hour])
        tallies = list(_tallies(path))
        rows = sum(each.messages for each in tallies)
        found[topic.partition("=")[2]].append(StagedFile(path, directory, rows, tallies))
    return found


def _tallies(path: Path) -> Iterator[Tally]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_BATCH_ROWS, columns=[PARTITION, OFFSET, TIMESTAMP, SIZE_BYTES]):
            time_us = np.asarray(batch[TIMESTAMP].cast(pa.int64()))
            rows: Any = pa.table(
                {
                    "partition": batch[PARTITION],
                    "window": np.floor_divide(time_us, DEFAULT_WINDOW_MS * 1000),  # rounds down, before 1970 too
                    "size": batch[SIZE_BYTES],
                    "offset": batch[OFFSET],
                }
            )
            added = [("size", "count"), ("size", "sum"), ("offset", "min"), ("offset", "max"), ("offset", "sum")]
            for row in rows.group_by(["partition", "window"]).aggregate(added).to_pylist():
                yield Tally(
                    row["partition"],
                    row["window"],
                    row["size_count"],
                    row["size_sum"],
                    row["offset_min"],
                    row["offset_max"],
                    row["offset_sum"],
                )


def landed(topic: str, files: Iterable[StagedFile], starts: Mapping[int, int], ends: Mapping[int, int]) -> list[Landed]:
    """The counts by partition. Raises TableError if there is a record that was not to be read."""
    counts = {partition: WindowCounts(DEFAULT_WINDOW_MS) for partition in starts}
    for file in files:
        for each in file.tallies:
            at = each.partition
            if at not in starts or each.first_offset < starts[at] or each.last_offset >= ends[at]:
                raise TableError(
                    f"{topic}-{at}: offsets {each.first_offset} to {each.last_offset} were written to {file.path}, "
                    "which were not asked for; nothing of it was landed"
                )
            row = counts[at].row(each.window, each.window)
            row[0] += each.messages
            row[1] += each.size_bytes
    return [
        Landed(partition, starts[partition], ends[partition], fold(counts[partition].counts(), MAX_COUNTS))
        for partition in sorted(starts)
    ]
