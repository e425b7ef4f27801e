"""Kafka's record batch, format v2: bytes in, bytes out.

The broker handles whole batches through `batch`; only tools, time lookups and topics whose configuration
demands it open a batch with `record`. Nothing here knows of files or sockets.
"""

from skylog.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    InvalidBatchError,
    check_batch,
    iterate_batches,
    stamp_append_time,
    stamp_offset,
)
from skylog.records.compression import Codec
from skylog.records.record import Record, build_batch, read_records

__all__ = [
    "HEADER_BYTES",
    "LOG_OVERHEAD_BYTES",
    "BatchHeader",
    "Codec",
    "InvalidBatchError",
    "Record",
    "build_batch",
    "check_batch",
    "iterate_batches",
    "read_records",
    "stamp_append_time",
    "stamp_offset",
]
