"""A Spark source that only returns a ready Arrow batch, again and again: no source in Python can be faster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from benchmarks.naive_source import NaiveReader, NaiveSource

BATCH_ROWS = 8_000
COLUMNS = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("timestampType", pa.int32()),
    ]
)


class ReadySource(NaiveSource):
    """Returns as many rows as a topic has, which are copies of its first ones. Its options are those of NaiveSource."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def reader(self, schema: Any) -> DataSourceReader:
        return ReadyReader(self.options["kafka.bootstrap.servers"], self.options["subscribe"])


class ReadyReader(NaiveReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        number, end_offset = partition.value
        first = list(super().read(InputPartition((number, min(BATCH_ROWS, end_offset)))))
        batch = pa.RecordBatch.from_arrays(
            [pa.array(values, field.type) for values, field in zip(zip(*first, strict=True), COLUMNS, strict=True)],
            schema=COLUMNS,
        )
        for start in range(0, end_offset, batch.num_rows):
            yield batch.slice(0, end_offset - start)
