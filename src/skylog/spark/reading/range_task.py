"""Reads ranges of offsets that the driver has planned, with `mapInArrow` instead of the data source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from skylog.spark.reading.options import ReadOptions
from skylog.spark.reading.ranges import ReadRange

if TYPE_CHECKING:
    import pyarrow as pa


BatchFunction = Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


@dataclass(frozen=True)
class RangeTask:
    """The function of the tasks. An input row is the number of an entry of `work`, whose ranges are read in order.

    If `then` is set, it gets the batches of records, and what it returns is the result of the task.
    """

    options: ReadOptions
    schema: StructType
    work: Sequence[Sequence[ReadRange]]
    then: BatchFunction | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = self._read(batches)
        return found if self.then is None else self.then(found)

    def _read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from skylog.spark.reading.range_reader import read_range  # imports Arrow and numpy

        for batch in batches:
            for number in batch.column(0).to_pylist():
                for part in self.work[number]:
                    yield from read_range(self.options, part, self.schema)
