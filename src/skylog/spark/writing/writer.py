"""Writing a DataFrame to topics: `df.write.format("skylog")`. Tasks encode into files, the driver sends them.

Only what Spark takes as the result of a task is sent, and only if all tasks have succeeded. So a task that is tried
again, or runs twice, writes nothing twice, and a job that fails before its end writes nothing at all. A driver that
dies while it sends leaves a part in the topic, and its files; run again, the job writes all rows: each is there at
least once. Only a stream has an identity by which a second run knows of the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from skylog.errors import ErrorCode, KafkaError
from skylog.spark.errors import OptionError
from skylog.spark.leaders import Leaders
from skylog.spark.writing.encoder import encode
from skylog.spark.writing.row_columns import RowColumns, check_columns
from skylog.spark.writing.staging import StagedFile, StagingFile, staging_directory
from skylog.spark.writing.write_options import WriteOptions

CHUNK_BYTES: Final = 32 << 20
"""Rows are encoded so many bytes at a time: large enough for full batches to each of many partitions."""


class SkylogWriter(DataSourceArrowWriter):
    """Lives on the driver for one write; executors get copies that only encode."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError('a topic can only be appended to: use mode("append")')
        check_columns(schema, options.topic)
        self._options = options
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        file = StagingFile(staging_directory(self._options), 0, task().partitionId())
        try:
            stage(self._options, self._schema, iterator, file)
            return file.finish("", durable=False)  # nobody comes back for it after a failure of the machine
        except BaseException:
            file.discard()
            raise

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        from skylog.spark.writing.delivery import deliver

        deliver(self._options, staged_files(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        from skylog.spark.writing.staging import remove_files

        remove_files(file.path for file in staged_files(messages))


def stage(options: WriteOptions, schema: StructType, batches: Iterator[pa.RecordBatch], file: StagingFile) -> None:
    """Encode all rows of a task into its file."""
    with Leaders(options.bootstrap, options.request_timeout_ms / 1000) as leaders:
        columns = RowColumns(schema, options.topic, lambda topic: leaders.partition_count(topic, options.max_block_s))
        for rows in _chunks(batches):
            records, targets = columns.records(rows)
            for target, header, block in encode(records, targets, options.codec, options.batch_bytes):
                partition = columns.targets[target]
                if header.size_bytes > options.max_request_bytes:
                    raise KafkaError(
                        ErrorCode.MESSAGE_TOO_LARGE,
                        f"a record for {partition} makes a batch of {header.size_bytes} bytes; raise "
                        f"kafka.max.request.size={options.max_request_bytes}, and max.message.bytes of the topic",
                    )
                file.add(partition, header, block)


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer and larger batches."""
    held: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in batches:
        held.append(batch)
        size_bytes += batch.nbytes
        if size_bytes >= CHUNK_BYTES:
            yield pa.concat_batches(held)
            held, size_bytes = [], 0
    if held:
        yield pa.concat_batches(held)


def staged_files(messages: Sequence[WriterCommitMessage | None]) -> list[StagedFile]:
    """What tasks have told; None stands for those that failed."""
    return [message for message in messages if isinstance(message, StagedFile)]


def task() -> TaskContext:
    found = TaskContext.get()
    assert found is not None
    return found
