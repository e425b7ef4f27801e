"""Encodes Arrow columns as finished record batches, without a Python object per row.

The numeric fields of a record become one short binary value per row. Arrow joins these with keys, values and headers.
The bytes of the joined column are the records of the batches, one after the other. Producer id, sequence and CRC are
set when a batch is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from skylog.errors import SkylogError
from skylog.model import NO_EPOCH, NO_PRODUCER_ID
from skylog.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, BatchHeader
from skylog.records.compression import Codec, compress
from skylog.spark.varints import Numbers, rows_of_varints, varint_widths

_NULL: Final = -1
_MOST_FIELD_BYTES: Final = 35  # of a record's numbers: length, attributes, time, offset, key, value, header count
_NO_HEADERS: Final = pa.scalar(b"\0", pa.large_binary())
_NOTHING: Final = pa.scalar(b"", pa.large_binary())


class EncodedBatch(NamedTuple):
    """A batch as header and compressed records. `target` is the index of its partition in `RowColumns.targets`."""

    target: int
    header: BatchHeader
    records: bytes | memoryview


@dataclass(frozen=True, slots=True)
class RecordRows:
    """Rows to encode. `key` and `headers` are None if no row has any. Times are in milliseconds."""

    value: pa.LargeBinaryArray
    key: pa.LargeBinaryArray | None
    headers: pa.ListArray | None
    timestamps: Numbers

    def take(self, rows: NDArray[np.int64]) -> RecordRows:
        return RecordRows(
            self.value.take(rows),
            None if self.key is None else self.key.take(rows),
            None if self.headers is None else self.headers.take(rows),
            self.timestamps[rows],
        )


def encode(rows: RecordRows, targets: NDArray[np.int64], codec: Codec, batch_bytes: int) -> Iterator[EncodedBatch]:
    """Yield batches of at most `batch_bytes` before compression (more only for a single large record).

    Rows with the same target keep their order.
    """
    if not len(targets):
        return
    if (targets != targets[0]).any():
        order = np.argsort(targets, kind="stable")
        rows, targets = rows.take(order), targets[order]
    tails = _NO_HEADERS if rows.headers is None else _header_bytes(rows.headers)
    sizes = _lengths(rows.value, 0) + _MOST_FIELD_BYTES
    if rows.key is not None:
        sizes += _lengths(rows.key, 0)
    if rows.headers is not None:
        sizes += _lengths(tails, 0)
    starts = _batch_starts(targets, sizes, batch_bytes - HEADER_BYTES)
    data, offsets = _records(rows, tails, starts)
    ends = np.append(starts[1:], len(targets))
    max_timestamps = np.maximum.reduceat(rows.timestamps, starts)
    for start, end, max_timestamp in zip(starts.tolist(), ends.tolist(), max_timestamps.tolist(), strict=True):
        body = data[offsets[start] : offsets[end]]
        block = compress(codec, body) if codec else body
        header = _header(len(block), codec, int(rows.timestamps[start]), max_timestamp, end - start)
        yield EncodedBatch(int(targets[start]), header, block)


def large_binary(column: pa.Array) -> pa.LargeBinaryArray:
    """Convert a column of strings or bytes to large_binary, the only layout this module uses."""
    if not pa.types.is_large_binary(column.type):
        column = column.cast(pa.binary()) if pa.types.is_string(column.type) else column
        column = column.cast(pa.large_binary())
    return column


def byte_ranges(column: pa.LargeBinaryArray) -> tuple[NDArray[np.uint8], Numbers]:
    """Return the bytes of a column, and the positions between its rows."""
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int64)[column.offset : column.offset + len(column) + 1]
    first, last = int(bounds[0]), int(bounds[-1])
    return np.frombuffer(data if data is not None else b"", dtype=np.uint8)[first:last], bounds - first


def _records(rows: RecordRows, tails: pa.Array | pa.Scalar, starts: Numbers) -> tuple[memoryview, Numbers]:
    """Return the bytes of all records, and the positions between them."""
    count = len(rows.timestamps)
    batch_sizes = np.diff(starts, append=count)
    offset_deltas = np.arange(count) - np.repeat(starts, batch_sizes)
    time_deltas = rows.timestamps - np.repeat(rows.timestamps[starts], batch_sizes)
    values, lengths = rows.value, _lengths(rows.value, _NULL)
    body = 1 + varint_widths(time_deltas) + varint_widths(offset_deltas) + varint_widths(lengths)
    body += np.maximum(lengths, 0)
    body += 1 if rows.headers is None else _lengths(tails, 0)
    if rows.key is None:
        body += 1
        pieces = [rows_of_varints([body, 0, time_deltas, offset_deltas, _NULL, lengths])]
    else:
        key_lengths = _lengths(rows.key, _NULL)
        body += varint_widths(key_lengths) + np.maximum(key_lengths, 0)
        numbers = rows_of_varints([body, 0, time_deltas, offset_deltas, key_lengths])
        pieces = [numbers, rows.key.fill_null(b""), rows_of_varints([lengths])]
    joined = pc.binary_join_element_wise(*pieces, values.fill_null(b""), tails, _NOTHING)
    data, offsets = byte_ranges(joined)
    return data.data, offsets


def _header_bytes(headers: pa.ListArray) -> pa.LargeBinaryArray:
    """Return the encoded headers of each row, preceded by their count."""
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    flat = headers.flatten()
    names, contents = pc.struct_field(flat, 0), large_binary(pc.struct_field(flat, 1))
    if names.null_count:
        raise SkylogError("column 'headers' has a header without a key: set the key or remove the header")
    names = large_binary(names)
    pairs = pc.binary_join_element_wise(
        rows_of_varints([_lengths(names, _NULL)]),
        names,
        rows_of_varints([_lengths(contents, _NULL)]),
        contents.fill_null(b""),
        _NOTHING,
    )
    data, bounds = byte_ranges(pairs)
    of_rows = bounds[np.concatenate([[0], np.cumsum(counts)])]
    buffers = [None, pa.py_buffer(of_rows), pa.py_buffer(data)]
    joined = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(counts), buffers)
    return pc.binary_join_element_wise(rows_of_varints([counts]), joined, _NOTHING)


def _lengths(column: pa.LargeBinaryArray, null: int) -> Numbers:
    """Return the length of each row in bytes, or `null` for nulls."""
    lengths: Numbers = np.diff(byte_ranges(column)[1])
    if column.null_count:
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = null
    return lengths


def _batch_starts(targets: NDArray[np.int64], sizes: Numbers, room_bytes: int) -> Numbers:
    """Return the first rows of batches. A batch ends if the target changes or the next row does not fit."""
    ends = np.cumsum(sizes)
    edges = np.flatnonzero(np.diff(targets, prepend=targets[0] - 1))
    starts: list[int] = []
    for start, stop in zip(edges.tolist(), [*edges[1:].tolist(), len(targets)], strict=True):
        while start < stop:
            starts.append(start)
            limit = ends[start] - sizes[start] + room_bytes
            start = min(max(int(np.searchsorted(ends, limit, side="right")), start + 1), stop)
    return np.array(starts, dtype=np.int64)


def _header(size_bytes: int, codec: Codec, base_timestamp: int, max_timestamp: int, count: int) -> BatchHeader:
    return BatchHeader(
        base_offset=0,
        batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES + size_bytes,
        partition_leader_epoch=NO_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=codec,
        last_offset_delta=count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_EPOCH,
        base_sequence=-1,
        record_count=count,
    )
