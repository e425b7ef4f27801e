"""The keys and places of many records at once, as numpy arrays, and those that stay after compaction."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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
    of a record's batch, whose records begin at `starts`. A null key has the length -1.
    """

    data: Bytes
    raw: memoryview
    starts: Integers
    batches: Integers
    begins: Integers
    ends: Integers
    timestamp_deltas: Integers
    key_starts: Integers
    key_lengths: Integers
    tombstones: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.begins)


def read_keyed(chunk: memoryview, batches: Sequence[tuple[int, BatchHeader]], limit_bytes: int) -> KeyedRecords:
    """Read the records of batches, given by position in `chunk` and header. Raises InvalidBatchError."""
    data, starts, ends = open_blocks(chunk, batches, limit_bytes)
    counts = np.array([header.record_count for _, header in batches], dtype=np.int64)
    filled = counts > 0
    if (starts[~filled] != ends[~filled]).any():
        raise InvalidBatchError("a batch without records has bytes", corrupt=True)
    try:
        return _read(data, starts, ends, counts)
    except IndexError as error:
        first = batches[0][1].base_offset
        raise InvalidBatchError(f"a batch at or after offset {first} is damaged: {error}", corrupt=True) from error


def open_blocks(
    chunk: memoryview, batches: Sequence[tuple[int, BatchHeader]], limit_bytes: int
) -> tuple[memoryview, Integers, Integers]:
    """Return the decompressed records of all batches, and where those of each one begin and end."""
    if any(header.attributes & CODEC_MASK for _, header in batches):
        blocks = _decompress_all(chunk, batches, limit_bytes)
        ends = np.cumsum([len(block) for block in blocks])
        starts = ends - [len(block) for block in blocks]
        return memoryview(b"".join([*blocks, bytes(MIN_BYTES)])), starts, ends
    places: NDArray[Any] = np.array([(at, header.size_bytes) for at, header in batches], dtype=np.int64).reshape(-1, 2)
    return chunk, places[:, 0] + HEADER_BYTES, places.sum(axis=1)


def _decompress_all(chunk: memoryview, batches: Sequence[tuple[int, BatchHeader]], limit_bytes: int) -> list[bytes]:
    """Return the decompressed records of each batch. A second thread does half of the work: codecs release the GIL."""

    def decompress(some: Sequence[tuple[int, BatchHeader]]) -> list[bytes]:
        scratch = bytearray()
        return [open_block(chunk[at:], header, limit_bytes, scratch) for at, header in some]

    middle = len(batches) // 2
    if not middle:
        return decompress(batches)
    with ThreadPoolExecutor(1) as thread:
        rest = thread.submit(decompress, batches[middle:])
        return decompress(batches[:middle]) + rest.result()


def _read(raw: memoryview, starts: Integers, ends: Integers, counts: Integers) -> KeyedRecords:
    data = np.frombuffer(raw, np.uint8)
    filled = counts > 0
    if not filled.any():
        none = np.zeros(0, dtype=np.int64)
        return KeyedRecords(data, raw, starts, none, none, none, none, none, none, none > 0)
    begins = record_starts(data, raw, starts[filled], ends[filled], counts[filled], with_lengths=True)
    record_ends, timestamp_deltas, at = read_times(data, begins)
    _, at = read_varints(data, at)  # the offset
    key_lengths, at = read_varints(data, at)
    values_at = at + np.maximum(key_lengths, 0)
    if (values_at >= record_ends).any() or (key_lengths < -1).any():
        raise IndexError("a key extends beyond its record")
    return KeyedRecords(
        data,
        raw,
        starts,
        np.repeat(np.arange(len(counts)), counts),
        begins,
        record_ends,
        timestamp_deltas,
        at,
        key_lengths,
        # A length of -1 is the single byte 1; the last bit of the first byte is the sign of any other.
        (data[values_at] & 1) == 1,
    )


def read_times(data: Bytes, begins: Integers) -> tuple[Integers, Integers, Integers]:
    """Return the ends and the timestamp deltas of records, and the positions after these deltas."""
    lengths, bodies = read_varints(data, begins)
    deltas, at = read_varints(data, bodies + 1)
    return bodies + lengths, deltas, at


class KeptRecords:
    """The records that stay, by batch: how many, their bytes, and the largest timestamp delta.

    A batch that stays as it is may be without rows: nobody asks for its bytes.
    """

    def __init__(
        self,
        counts: list[int],
        raw: memoryview,
        batches: Integers,
        begins: Integers,
        ends: Integers,
        timestamp_deltas: Integers,
    ) -> None:
        self.counts = counts
        self._raw = raw
        edges = np.searchsorted(batches, np.arange(len(counts) + 1))
        is_filled = np.diff(edges) > 0
        deltas = np.zeros(len(counts), dtype=np.int64)
        if len(begins):
            deltas[is_filled] = np.maximum.reduceat(timestamp_deltas, edges[:-1][is_filled])
        self.timestamp_deltas: list[int] = deltas.tolist()
        # Neighbouring records of a batch are copied together.
        is_new_run = np.ones(len(begins), dtype=np.bool_)
        is_new_run[1:] = (begins[1:] != ends[:-1]) | (batches[1:] != batches[:-1])
        firsts = np.flatnonzero(is_new_run)
        lasts = np.append(firsts[1:], len(begins))[: len(firsts)] - 1
        self._begins: list[int] = begins[firsts].tolist()
        self._ends: list[int] = ends[lasts].tolist()
        self._runs: list[int] = np.searchsorted(batches[firsts], np.arange(len(counts) + 1)).tolist()

    def block(self, batch: int) -> bytes:
        """Return the records of a batch, without those that are dropped."""
        runs = slice(self._runs[batch], self._runs[batch + 1])
        raw = self._raw
        return b"".join([raw[begin:end] for begin, end in zip(self._begins[runs], self._ends[runs], strict=True)])
