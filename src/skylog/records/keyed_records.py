"""The keys, offsets and places of many records at once, as numpy arrays, and those that stay after compaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from skylog.records.batch import CODEC_MASK, HEADER_BYTES, BatchHeader, InvalidBatchError
from skylog.records.record_starts import Bytes, Integers, read_varints, record_starts
from skylog.records.retain import open_block

MIN_BYTES: Final = 8
"""Of the data, so that a word of eight bytes can be read."""


@dataclass(frozen=True, slots=True)
class KeyedRecords:
    """The records of some batches, in order. Each row of a column is one record.

    `data` and `raw`, a view of it, have the decompressed records, each from `begins` to `ends`. `batches` is the number
    of a record's batch. A null key has the length -1.
    """

    data: Bytes
    raw: memoryview
    batches: Integers
    begins: Integers
    ends: Integers
    timestamp_deltas: Integers
    offsets: Integers
    key_starts: Integers
    key_lengths: Integers
    tombstones: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.offsets)


def read_keyed(chunk: memoryview, batches: Sequence[tuple[int, BatchHeader]], limit_bytes: int) -> KeyedRecords:
    """Read the records of batches, given by position in `chunk` and header. Raises InvalidBatchError."""
    data, starts, ends = _blocks(chunk, batches, limit_bytes)
    counts = np.array([header.record_count for _, header in batches], dtype=np.int64)
    filled = counts > 0
    if (starts[~filled] != ends[~filled]).any():
        raise InvalidBatchError("a batch without records has bytes", corrupt=True)
    try:
        return _read(data, starts[filled], ends[filled], counts, [header.base_offset for _, header in batches])
    except IndexError as error:
        first = batches[0][1].base_offset
        raise InvalidBatchError(f"a batch at or after offset {first} is damaged: {error}", corrupt=True) from error


def _blocks(
    chunk: memoryview, batches: Sequence[tuple[int, BatchHeader]], limit_bytes: int
) -> tuple[memoryview, Integers, Integers]:
    """Return the decompressed records of all batches, and where those of each one begin and end."""
    if any(header.attributes & CODEC_MASK for _, header in batches):
        blocks = [open_block(chunk[at:], header, limit_bytes) for at, header in batches]
        ends = np.cumsum([len(block) for block in blocks])
        starts = ends - [len(block) for block in blocks]
        return memoryview(b"".join([*blocks, bytes(MIN_BYTES)])), starts, ends
    places: NDArray[Any] = np.array([(at, header.size_bytes) for at, header in batches], dtype=np.int64).reshape(-1, 2)
    return chunk, places[:, 0] + HEADER_BYTES, places.sum(axis=1)


def _read(raw: memoryview, starts: Integers, ends: Integers, counts: Integers, base_offsets: list[int]) -> KeyedRecords:
    data = np.frombuffer(raw, np.uint8)
    if not len(starts):
        none = np.zeros(0, dtype=np.int64)
        return KeyedRecords(data, raw, none, none, none, none, none, none, none, none > 0)
    begins = record_starts(data, raw, starts, ends, counts[counts > 0], with_lengths=True)
    lengths, bodies = read_varints(data, begins)
    record_ends = bodies + lengths
    timestamp_deltas, at = read_varints(data, bodies + 1)
    offset_deltas, at = read_varints(data, at)
    key_lengths, at = read_varints(data, at)
    values_at = at + np.maximum(key_lengths, 0)
    if (values_at >= record_ends).any() or (key_lengths < -1).any():
        raise IndexError("a key extends beyond its record")
    batches = np.repeat(np.arange(len(counts)), counts)
    return KeyedRecords(
        data,
        raw,
        batches,
        begins,
        record_ends,
        timestamp_deltas,
        np.array(base_offsets, dtype=np.int64)[batches] + offset_deltas,
        at,
        key_lengths,
        # A length of -1 is the single byte 1; the last bit of the first byte is the sign of any other.
        (data[values_at] & 1) == 1,
    )


class KeptRecords:
    """The records that stay, by batch: how many, their bytes, and the largest timestamp delta."""

    def __init__(self, records: KeyedRecords, keeps: NDArray[np.bool_], batch_count: int) -> None:
        self._raw = records.raw
        rows = np.flatnonzero(keeps)
        batches = records.batches[rows]
        edges = np.searchsorted(batches, np.arange(batch_count + 1))
        self.counts: list[int] = np.diff(edges).tolist()
        is_filled = np.diff(edges) > 0
        deltas = np.zeros(batch_count, dtype=np.int64)
        if len(rows):
            deltas[is_filled] = np.maximum.reduceat(records.timestamp_deltas[rows], edges[:-1][is_filled])
        self.timestamp_deltas: list[int] = deltas.tolist()
        # Neighbouring records of a batch are copied together.
        is_new_run = np.ones(len(rows), dtype=np.bool_)
        is_new_run[1:] = (np.diff(rows) > 1) | (np.diff(batches) > 0)
        firsts = np.flatnonzero(is_new_run)
        lasts = np.append(firsts[1:], len(rows))[: len(firsts)] - 1
        self._begins: list[int] = records.begins[rows[firsts]].tolist()
        self._ends: list[int] = records.ends[rows[lasts]].tolist()
        self._runs: list[int] = np.searchsorted(batches[firsts], np.arange(batch_count + 1)).tolist()

    def block(self, batch: int) -> bytes:
        """Return the records of a batch, without those that are dropped."""
        runs = slice(self._runs[batch], self._runs[batch + 1])
        raw = self._raw
        return b"".join([raw[begin:end] for begin, end in zip(self._begins[runs], self._ends[runs], strict=True)])
