"""Reads ranges of offsets that the driver has planned, with `mapInArrow` instead of the data source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from skylog.spark.reading.options import ReadOptions
from skylog.spark.reading.ranges import ReadRange

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class RangeTask:
    """The function of the tasks. An input row is the number of an entry of `work`, whose ranges are read in order."""

    options: ReadOptions
    schema: StructType
    work: Sequence[Sequence[ReadRange]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from skylog.spark.reading.range_reader import read_range  # imports Arrow and numpy

        for batch in batches:
            for number in batch.column(0).to_pylist():
                for part in self.work[number]:
                    yield from read_range(self.options, part, self.schema)
