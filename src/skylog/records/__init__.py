"""Kafka's record batch, format v2: bytes in, bytes out.

The broker handles whole batches with `batch`. Only tools, time lookups and topics whose configuration requires it open
a batch with `record`. Nothing here knows about files or sockets.
"""

from skylog.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    InvalidBatchError,
    check_batch,
    iterate_batches,
    stamp_append_time,
    stamp_epochs,
    stamp_offset,
)
from skylog.records.compression import Codec
from skylog.records.control import Marker, build_marker, read_marker
from skylog.records.record import Record, build_batch, read_records

__all__ = [
    "HEADER_BYTES",
    "LOG_OVERHEAD_BYTES",
    "BatchHeader",
    "Codec",
    "InvalidBatchError",
    "Marker",
    "Record",
    "build_batch",
    "build_marker",
    "check_batch",
    "iterate_batches",
    "read_marker",
    "read_records",
    "stamp_append_time",
    "stamp_epochs",
    "stamp_offset",
]
