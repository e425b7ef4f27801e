"""A Spark source that only returns a ready Arrow batch, again and again: no source in Python can be faster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from benchmarks.naive_source import NaiveReader, NaiveSource

BATCH_ROWS = 8_000


class ReadySource(NaiveSource):
    """Returns as many rows as a topic has, which are copies of its first ones. Its options are those of NaiveSource."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def reader(self, schema: Any) -> DataSourceReader:
        return ReadyReader(self.options["kafka.bootstrap.servers"], self.options["subscribe"])


class ReadyReader(NaiveReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        import pyarrow as pa

        from skylog.spark.schema import arrow_schema, record_schema

        number, end_offset = partition.value
        columns = arrow_schema(record_schema(with_headers=False))
        first = zip(*super().read(InputPartition((number, min(BATCH_ROWS, end_offset)))), strict=True)
        arrays = [pa.array(values, field.type) for values, field in zip(first, columns, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=columns)
        for start in range(0, end_offset, batch.num_rows):
            yield batch.slice(0, end_offset - start)
