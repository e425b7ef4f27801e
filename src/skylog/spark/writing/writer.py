"""Writes a DataFrame to topics: `df.write.format("skylog")`. Tasks encode into files, the driver sends them.

The driver sends only the committed result of each task, and only after all tasks have succeeded. A task that is retried
or runs twice writes nothing twice, and a failed job writes nothing. If the driver dies while sending, a part is stored
and its files remain. A second run writes all rows again: each at least once. Only a stream has an id by which a second
run recognises the first.
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
from skylog.spark.writing.object_store import ObjectStore
from skylog.spark.writing.row_columns import RowColumns, check_columns
from skylog.spark.writing.staging import (
    StagedFile,
    StagingFile,
    remote_location,
    remove_files,
    staging_directory,
    temporary_directory,
)
from skylog.spark.writing.target_topics import TargetTopics
from skylog.spark.writing.write_options import WriteOptions

CHUNK_BYTES: Final = 32 << 20
"""Rows are encoded in chunks of this size, which is enough for full batches to many partitions."""


class SkylogWriter(DataSourceArrowWriter):
    """Lives in the driver for one write. Executors get copies that only encode."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError('a topic is append-only: use mode("append")')
        check_columns(schema, options.topic)
        self._options = options
        self._schema = schema
        self._remote = remote_location(options)
        self._directory = None if self._remote else staging_directory(options)
        if self._remote:
            ObjectStore(self._remote)  # raises OptionError before a task starts

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        file = StagingFile(self._directory or temporary_directory(), 0, task_context().partitionId())
        try:
            stage(self._options, self._schema, iterator, file)
            staged = file.finish("", durable=False)  # not used after a machine failure
        except BaseException:
            file.discard()
            raise
        return ObjectStore(self._remote).upload(staged) if self._remote else staged

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        from skylog.spark.writing.delivery import deliver

        files = staged_files(messages)
        if self._remote is None:
            deliver(self._options, files)
            return
        store = ObjectStore(self._remote)
        with store.downloaded(files) as copies:
            deliver(self._options, copies)
        store.remove(files)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        files = staged_files(messages)
        if self._remote is None:
            remove_files(file.path for file in files)
        else:
            ObjectStore(self._remote).remove(files)


def stage(options: WriteOptions, schema: StructType, batches: Iterator[pa.RecordBatch], file: StagingFile) -> None:
    """Encode the rows of a task into its file."""
    with Leaders(options.bootstrap, options.request_timeout_ms / 1000, options.security) as leaders:
        columns = RowColumns(schema, options.topic, TargetTopics(leaders, options).partition_count)
        for rows in _chunks(batches):
            records, targets = columns.records(rows)
            for target, header, block in encode(records, targets, options.codec, options.batch_bytes):
                partition = columns.targets[target]
                if header.size_bytes > options.max_request_bytes:
                    raise KafkaError(
                        ErrorCode.MESSAGE_TOO_LARGE,
                        f"a record for {partition} needs a batch of {header.size_bytes} bytes; raise the option "
                        f"kafka.max.request.size={options.max_request_bytes}, and max.message.bytes of the topic",
                    )
                file.add(partition, header, block)


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in fewer, larger batches."""
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
    """Return the files of the tasks that succeeded. The message of a failed task is None."""
    return [message for message in messages if isinstance(message, StagedFile)]


def task_context() -> TaskContext:
    found = TaskContext.get()
    assert found is not None
    return found
