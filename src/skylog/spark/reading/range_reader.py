"""The work of a task: reads one range of offsets as Arrow batches. Runs in executors, so it imports little."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructType

from skylog.spark.kafka_settings import is_read_committed
from skylog.spark.reading.batches import batches_in_range, payloads
from skylog.spark.reading.columns import RecordColumns
from skylog.spark.reading.fetcher import FetchSettings, PartitionFetcher
from skylog.spark.reading.options import ReadOptions
from skylog.spark.reading.ranges import ReadRange
from skylog.spark.reading.transactions import committed_batches
from skylog.spark.schema import arrow_schema, record_schema
from skylog.spark.security import Security, needs_library

if TYPE_CHECKING:
    from skylog.spark.reading.avro_values import AvroValues
    from skylog.spark.reading.json_values import JsonValues

DEFAULT_FETCH_BYTES = 8 << 20


def read_range(options: ReadOptions, part: ReadRange, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the records of `part` in offset order, with the columns of `schema`."""
    records = arrow_schema(record_schema(with_headers=options.include_headers))
    if needs_library(options.kafka):
        from skylog.spark.reading.message_reader import read_messages

        found = read_messages(options, part, records)
    else:
        found = read_batches(fetch_settings(options), part, records)
    if options.value_format is None:
        return found
    return map(_values(options, schema).extend, found)


def _values(options: ReadOptions, schema: StructType) -> AvroValues | JsonValues:
    if options.value_format == "avro":
        from skylog.spark.reading.avro_values import AvroValues

        return AvroValues(options, schema)
    from skylog.spark.reading.json_values import JsonValues

    return JsonValues(arrow_schema(schema))


def read_batches(settings: FetchSettings, part: ReadRange, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Fetch whole batches from the broker and decode them in place."""
    partition = part.topic_partition
    columns = RecordColumns(partition, schema)
    with closing(PartitionFetcher(settings, partition)) as fetcher:
        for offset, records, headers, positions, aborted in fetcher.batches(part.start_offset, part.end_offset):
            chosen = batches_in_range(headers, offset, part.end_offset)
            if aborted:
                chosen &= committed_batches(records, headers, positions, aborted)
            if not chosen.any():
                continue
            for group in payloads(records, headers[chosen], positions[chosen], partition):
                yield columns.decode(group, offset, part.end_offset)


def fetch_settings(options: ReadOptions) -> FetchSettings:
    kafka = options.kafka
    return FetchSettings(
        bootstrap=options.bootstrap,
        max_bytes=int(kafka.get("max.partition.fetch.bytes", DEFAULT_FETCH_BYTES)),
        patience_s=options.poll_timeout_ms / 1000,
        request_timeout_s=int(kafka.get("request.timeout.ms", 30_000)) / 1000,
        fail_on_data_loss=options.fail_on_data_loss,
        read_committed=is_read_committed(kafka),
        security=Security.of(kafka),
    )
