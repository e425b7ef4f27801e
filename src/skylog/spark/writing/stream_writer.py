"""Writes a stream to topics: `writeStream.format("skylog")`, each micro-batch exactly once.

Spark repeats a micro-batch if it does not know that it finished. Query id and batch number, which Spark stores in the
checkpoint, identify it. The manifest in the staging directory has its state, or, with transactions, the log itself has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from skylog.errors import SkylogError
from skylog.spark.writing.object_store import ObjectStore
from skylog.spark.writing.row_columns import check_columns
from skylog.spark.writing.staging import (
    StagedFile,
    StagingFile,
    remote_location,
    staging_directory,
    temporary_directory,
)
from skylog.spark.writing.write_options import WriteOptions
from skylog.spark.writing.writer import stage, staged_files, task_context

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


class SkylogStreamWriter(DataSourceStreamArrowWriter):
    """Created for every micro-batch. In output mode complete, every micro-batch appends the whole result."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema, options.topic)
        self._options = options
        self._schema = schema
        self._remote = remote_location(options) if options.transactional else None
        if self._remote:
            ObjectStore(self._remote)  # raises OptionError before a task starts
        # Now, in the driver: a relative path is another one in executors.
        self._staging = temporary_directory() if self._remote else staging_directory(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = task_context()
        query_id, batch_id = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if query_id is None or batch_id is None:
            raise SkylogError(f"the task has no query id: Spark did not set {_QUERY_ID} and {_BATCH_ID}")
        file = StagingFile(self._directory(query_id), int(batch_id), context.partitionId())
        try:
            stage(self._options, self._schema, iterator, file)
            staged = file.finish(query_id, durable=self._remote is None)
        except BaseException:
            file.discard()
            raise
        return ObjectStore(self._remote, query_id).upload(staged) if self._remote else staged

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        from skylog.spark.writing.delivery import deliver_micro_batch

        files = staged_files(messages)
        if files and self._remote:
            store = ObjectStore(self._remote, files[0].query_id)
            with store.downloaded(files) as copies:
                deliver_micro_batch(self._options, self._directory_of(files), batchId, copies)
            store.remove_staged(batchId)
        elif files:
            deliver_micro_batch(self._options, self._directory_of(files), batchId, files)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        from skylog.spark.writing.delivery import abandon_micro_batch

        files = staged_files(messages)
        if files and self._remote:
            ObjectStore(self._remote, files[0].query_id).remove_staged(batchId)
        elif files:
            abandon_micro_batch(self._directory_of(files), batchId)

    def _directory_of(self, files: Sequence[StagedFile]) -> Path:
        return self._directory(files[0].query_id)

    def _directory(self, query_id: str) -> Path:
        return self._staging / query_id
