"""Creates staged files without Spark, as a task would return them to the driver."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from skylog.model import TopicPartition
from skylog.records.compression import Codec
from skylog.spark.writing.encoder import RecordRows, encode
from skylog.spark.writing.staging import StagedFile, StagingFile
from skylog.spark.writing.write_options import WriteOptions, write_options

BATCH_BYTES = 400


def sink_options(bootstrap: str, *, transactional: bool = False, **kafka: str) -> WriteOptions:
    given = {f"kafka.{key.replace('_', '.')}": value for key, value in kafka.items()}
    return write_options({"kafka.bootstrap.servers": bootstrap, "transactional": str(transactional).lower(), **given})


def stage_values(
    directory: Path,
    topic: str,
    values: Sequence[bytes],
    *,
    partitions: int = 1,
    batch_id: int = 0,
    task: int = 0,
    batch_bytes: int = BATCH_BYTES,
) -> StagedFile:
    """Stage values round-robin for each partition, in batches of a few records."""
    file = StagingFile(directory, batch_id, task)
    rows = RecordRows(pa.array(values, pa.large_binary()), None, None, np.full(len(values), 1_700_000_000_000))
    for target, header, records in encode(rows, np.arange(len(values)) % partitions, Codec.NONE, batch_bytes):
        file.add(TopicPartition(topic, target), header, records)
    return file.finish("query", durable=True)
