"""Converts payloads of record batches to the columns of Spark's Kafka source, without a Python object per record.

Only the lengths of records are read sequentially, because each gives the start of the next record. Everything else
is done for all records of all batches at once: numpy reads the varints, Arrow copies keys and values. See
`skylog.records.record` for the format of a record.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skylog.model import TopicPartition
from skylog.records.batch import LOG_APPEND_TIME, InvalidBatchError
from skylog.records.byte_columns import FieldSpan, gather
from skylog.records.record_starts import read_varints, record_starts
from skylog.spark.reading.batches import Payloads

Integers = NDArray[np.int64]

_LARGEST_MS: Final = (2**63 - 1) // 1000
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)


class RecordColumns:
    """Builds Arrow record batches of one partition, with the columns that `schema` names."""

    def __init__(self, partition: TopicPartition, schema: pa.Schema) -> None:
        self._partition = partition
        self._schema = schema
        self._with_headers = "headers" in schema.names

    def decode(self, payloads: Payloads, start_offset: int, end_offset: int) -> pa.RecordBatch:
        """Decode the records from `start_offset` to `end_offset` (exclusive). Raises InvalidBatchError."""
        try:
            return self._decode(payloads, start_offset, end_offset)
        except IndexError as error:
            first = payloads.headers["base_offset"][0]
            raise InvalidBatchError(
                f"{self._partition}: a batch at or after offset {first} is damaged: {error}; skip it with "
                "startingOffsets",
                corrupt=True,
            ) from error

    def _decode(self, payloads: Payloads, start_offset: int, end_offset: int) -> pa.RecordBatch:
        headers = payloads.headers
        counts = headers["record_count"]
        data = np.frombuffer(payloads.data, np.uint8)
        starts, limits = self._records(payloads, data)
        timestamp_deltas, at = read_varints(data, starts + 1)
        offset_deltas, at = read_varints(data, at)
        keys, at = _read_span(data, at)
        values, at = _read_span(data, at)
        if (at >= limits).any():
            raise IndexError("a field extends beyond its record")
        offsets = np.repeat(headers["base_offset"].astype(np.int64), counts) + offset_deltas
        types = headers["attributes"] & LOG_APPEND_TIME != 0
        timestamps = np.repeat(headers["base_timestamp"].astype(np.int64), counts) + timestamp_deltas
        if types.any():
            append_times = np.repeat(headers["max_timestamp"].astype(np.int64), counts)
            timestamps = np.where(np.repeat(types, counts), append_times, timestamps)
        columns = {"offset": offsets, "timestamp": timestamps, "timestampType": np.repeat(types, counts)}
        if offsets.min(initial=start_offset) < start_offset or offsets.max(initial=0) >= end_offset:
            kept = np.flatnonzero((offsets >= start_offset) & (offsets < end_offset))
            columns = {name: column[kept] for name, column in columns.items()}
            keys, values, at, limits = keys.select(kept), values.select(kept), at[kept], limits[kept]
        return self._batch(payloads.data, data, columns, keys, values, at, limits)

    def _records(self, payloads: Payloads, data: NDArray[np.uint8]) -> tuple[Integers, Integers]:
        """Return the start of each record, after its length, and its end: the next record or the end of the batch."""
        counts = payloads.headers["record_count"].astype(np.int64)
        starts = record_starts(data, memoryview(payloads.data), payloads.starts, payloads.ends, counts)
        limits = np.empty_like(starts)
        limits[:-1] = starts[1:] - 1
        limits[np.cumsum(counts) - 1] = payloads.ends
        return starts, limits

    def _batch(
        self,
        raw: bytes | bytearray | memoryview,
        data: NDArray[np.uint8],
        columns: dict[str, NDArray[Any]],
        keys: FieldSpan,
        values: FieldSpan,
        at: Integers,
        limits: Integers,
    ) -> pa.RecordBatch:
        count = len(columns["offset"])
        buffer = pa.py_buffer(raw)
        clipped = np.clip(columns["timestamp"], -_LARGEST_MS, _LARGEST_MS)
        built = {
            "key": gather(buffer, keys),
            "value": gather(buffer, values),
            "topic": pa.repeat(pa.scalar(self._partition.topic), count),
            "partition": pa.repeat(pa.scalar(self._partition.partition, pa.int32()), count),
            "offset": pa.array(columns["offset"]),
            "timestamp": pa.array(clipped * 1000).view(_TIMESTAMP),
            "timestampType": pa.array(columns["timestampType"].astype(np.int32)),
        }
        if self._with_headers:
            built["headers"] = _headers(buffer, data, at, limits)
        return pa.RecordBatch.from_arrays([built[name] for name in self._schema.names], schema=self._schema)


def _texts(names: pa.Array) -> pa.Array:
    """Return header names as text. Invalid UTF-8 is replaced, as in Java's clients."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())


def _read_span(data: NDArray[np.uint8], at: Integers) -> tuple[FieldSpan, Integers]:
    lengths, at = read_varints(data, at)
    return FieldSpan(at, lengths), at + np.maximum(lengths, 0)


def _headers(buffer: pa.Buffer, data: NDArray[np.uint8], at: Integers, limits: Integers) -> pa.Array:
    """Return the headers of every record, or null if it has none, as Spark's source does. One pass per header."""
    counts, at = read_varints(data, at)
    if (counts < 0).any() or (counts > limits - at).any():
        raise IndexError("a record has an impossible number of headers")
    edges = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=edges[1:])
    total = int(edges[-1])
    names = FieldSpan(np.zeros(total, np.int64), np.zeros(total, np.int64))
    contents = FieldSpan(np.zeros(total, np.int64), np.zeros(total, np.int64))
    for number in range(int(counts.max(initial=0))):
        rows = np.flatnonzero(counts > number)
        slots = edges[rows] + number
        positions = at[rows]
        for span in (names, contents):
            (span.starts[slots], span.lengths[slots]), positions = _read_span(data, positions)
        at[rows] = positions
    if (at > limits).any() or (names.lengths < 0).any():
        raise IndexError("a header extends beyond its record or has no name")
    pairs = pa.StructArray.from_arrays(
        [_texts(gather(buffer, names)), gather(buffer, contents)],
        fields=list(HEADERS.value_type),
    )
    return pa.ListArray.from_arrays(pa.array(edges), pairs, type=HEADERS, mask=pa.array(counts == 0))
