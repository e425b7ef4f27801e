"""Lands plain events directly: tasks read them, parse them and write files, and no row goes through Spark's JVM.

The other records are left to the transforms. Which those are depends on a record alone, so that a record is always in
exactly one of the two. Events of many hours in no order are left to Spark too, which sorts them into a few files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skylog.pipeline.plain_events import PlainEvents

if TYPE_CHECKING:
    from numpy.typing import NDArray

OPEN_FILES: Final = 8
"""The hours that a task writes at the same time."""
_HOUR_US: Final = 3_600_000_000
_FIRST_US: Final = -62_135_596_800_000_000  # of the year 1
_LAST_US: Final = 253_402_300_800_000_000  # the end of the year 9999


@dataclass(frozen=True)
class PlainRows:
    """Converts records to rows as `events_frame` does, in batches of one hour. `schema` has the columns of the rows."""

    parser: PlainEvents
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            is_plain, fields = split(self.parser, batch)
            if fields:
                yield from self._by_hour(batch if is_plain.all() else batch.filter(pa.array(is_plain)), fields)

    def _by_hour(self, records: pa.RecordBatch, fields: Sequence[pa.Array]) -> Iterator[pa.RecordBatch]:
        hours = np.floor_divide(_times_us(records), _HOUR_US)
        length = [pc.fill_null(pc.binary_length(records[name]), 0) for name in ("key", "value")]
        columns = [
            *fields,
            records["timestamp"],
            records["partition"],
            records["offset"],
            records["timestamp"],
            records["key"],
            pc.add(*length),
            records["topic"],
            pa.array(np.floor_divide(hours, 24).astype(np.int32)).cast(pa.date32()),
            pa.array(np.mod(hours, 24).astype(np.int32)),
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        found = np.unique(hours)
        for hour in found:
            yield rows if len(found) == 1 else rows.take(pa.array(np.flatnonzero(hours == hour)))


@dataclass(frozen=True)
class OtherRecords:
    """Returns the records that `PlainRows` leaves out."""

    parser: PlainEvents

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            is_plain, _ = split(self.parser, batch)
            if not is_plain.all():
                yield batch.filter(pa.array(~is_plain))


def split(parser: PlainEvents, records: pa.RecordBatch) -> tuple[NDArray[np.bool_], list[pa.Array]]:
    """Return which records are plain, and the columns of their fields. A record without a date is not."""
    is_plain, fields = parser.parse(records["value"])
    times = _times_us(records)
    is_dated = (times >= _FIRST_US) & (times < _LAST_US)
    if is_dated.all():
        return is_plain, fields
    kept = pa.array(is_dated[is_plain])
    return is_plain & is_dated, [each.filter(kept) for each in fields]


def _times_us(records: pa.RecordBatch) -> NDArray[np.int64]:
    return np.asarray(records["timestamp"].cast(pa.int64()))
