"""Reads records through librdkafka, for TLS and SASL. Slower than reading whole batches."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaException, Message
from confluent_kafka import KafkaError as LibraryError
from confluent_kafka import TopicPartition as LibraryPartition

from skylog.client import Message as ClientMessage
from skylog.errors import KafkaError, SkylogError
from skylog.spark.errors import DataLossError, ShortenedLogError
from skylog.spark.kafka_settings import is_read_committed
from skylog.spark.reading.cluster import UserConnection
from skylog.spark.reading.options import ReadOptions
from skylog.spark.reading.ranges import ReadRange

logger = logging.getLogger(__name__)

BATCH_COUNT: Final = 10_000
POLL_S: Final = 0.25


def read_messages(options: ReadOptions, part: ReadRange, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the records of `part` in offset order. Raises the same errors as `read_batches`."""
    connection = UserConnection(options.kafka)
    consumer = connection.consumer(
        {
            "group.id": options.committing_group or "skylog-spark",  # required by librdkafka; no group is joined
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if is_read_committed(options.kafka) else "read_uncommitted",
        }
    )
    try:
        consumer.assign([LibraryPartition(part.topic, part.partition, part.start_offset)])
        yield from _read(consumer, connection, options, part, schema)
    finally:
        consumer.close()


def _read(
    consumer: Consumer, connection: UserConnection, options: ReadOptions, part: ReadRange, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    patience_s = options.poll_timeout_ms / 1000
    deadline = time.monotonic() + patience_s
    is_over = False
    while not is_over:
        rows: list[Message] = []
        for message in consumer.consume(BATCH_COUNT, timeout=POLL_S):
            offset = message.offset()
            assert offset is not None
            if (error := message.error()) is None:
                is_over = offset >= part.end_offset - 1
                if offset < part.end_offset:
                    rows.append(message)
            elif error.code() == LibraryError._PARTITION_EOF:
                is_over = offset >= part.end_offset
            elif error.code() == LibraryError._AUTO_OFFSET_RESET:
                is_over = not _resume(consumer, part, offset, fail_on_data_loss=options.fail_on_data_loss)
            elif not error.retriable():
                raise connection.error(error, f"{part.topic_partition} at offset {offset}")
            if is_over:
                break
        if rows:
            deadline = time.monotonic() + patience_s
            yield _batch(rows, part, schema)
        elif not is_over and time.monotonic() > deadline:
            reason = connection.down_reason or "no records were received"
            raise SkylogError(f"timed out reading {part.topic_partition} up to offset {part.end_offset}: {reason}")


def _resume(consumer: Consumer, part: ReadRange, offset: int, *, fail_on_data_loss: bool) -> bool:
    """Continue from the start of the log. Return False if the range ends before it. Raises if `fail_on_data_loss`."""
    where = LibraryPartition(part.topic, part.partition)
    try:
        found: Any = consumer.get_watermark_offsets(where, timeout=30)
    except KafkaException as failure:
        raise SkylogError(f"{part.topic_partition}: cannot get the start offset of the log: {failure}") from failure
    log_start_offset, log_end_offset = found
    is_before = part.start_offset < log_start_offset
    error: KafkaError = (
        DataLossError(part.topic_partition, part.start_offset, log_start_offset)
        if is_before
        else ShortenedLogError(part.topic_partition, part.end_offset - 1, log_end_offset)
    )
    if fail_on_data_loss:
        raise error
    logger.warning("%s", error)
    if is_before and log_start_offset < part.end_offset:
        consumer.assign([LibraryPartition(part.topic, part.partition, log_start_offset)])
        return True
    return False


def _batch(rows: Sequence[Message], part: ReadRange, schema: pa.Schema) -> pa.RecordBatch:
    times = [row.timestamp() for row in rows]
    columns = {
        "key": [row.key() for row in rows],
        "value": [row.value() for row in rows],
        "topic": [part.topic] * len(rows),
        "partition": [part.partition] * len(rows),
        "offset": [row.offset() for row in rows],
        "timestamp": [max(time_ms, -1) * 1000 for _, time_ms in times],
        "timestampType": [int(kind == TIMESTAMP_LOG_APPEND_TIME) for kind, _ in times],
        "headers": [_headers(ClientMessage(row).headers) for row in rows],
    }
    return pa.RecordBatch.from_arrays([pa.array(columns[each.name], each.type) for each in schema], schema=schema)


def _headers(pairs: Any) -> list[dict[str, Any]] | None:
    return [{"key": name, "value": content} for name, content in pairs] if pairs else None
