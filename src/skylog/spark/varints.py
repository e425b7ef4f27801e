"""Encodes whole columns of numbers as zigzag varints, the integer format of Kafka's records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

_MAX_BYTES: Final = 10


def varint_widths(values: Numbers) -> Numbers:
    """Return the encoded size of each value in bytes."""
    return _widths(_zigzag(values))


def rows_of_varints(columns: Sequence[Numbers | int]) -> pa.LargeBinaryArray:
    """Return the concatenated varints of each row. A column given as an `int` has the same value in all rows."""
    count = next(len(column) for column in columns if not isinstance(column, int))
    fields = [_zigzag(np.array([column]) if isinstance(column, int) else column) for column in columns]
    widths = [_widths(field) for field in fields]
    offsets = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.broadcast_to(sum(widths), count), out=offsets[1:])
    out = np.empty(offsets[-1], dtype=np.uint8)
    position = offsets[:-1]
    for field, width in zip(fields, widths, strict=True):
        _scatter(out, position, np.broadcast_to(field, count), np.broadcast_to(width, count))
        position = position + width
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(out)])


def _zigzag(values: Numbers) -> NDArray[np.uint64]:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def _widths(raw: NDArray[np.uint64]) -> Numbers:
    widths = np.ones(len(raw), dtype=np.int64)
    largest = int(raw.max(initial=0))
    for index in range(1, _MAX_BYTES):
        if largest >> (7 * index) == 0:
            break
        widths += raw >= np.uint64(1 << (7 * index))
    return widths


def _scatter(out: NDArray[np.uint8], position: Numbers, raw: NDArray[np.uint64], width: Numbers) -> None:
    """Write each number at its position: the first bytes of all, then the second bytes of the longer ones, etc."""
    index = 0
    while True:
        is_longer = width > index + 1
        some_longer = bool(is_longer.any())
        byte = (raw & np.uint64(0x7F)).astype(np.uint8)
        out[position + index] = byte | (is_longer.astype(np.uint8) << 7) if some_longer else byte
        if not some_longer:
            return
        if not is_longer.all():
            position, raw, width = position[is_longer], raw[is_longer], width[is_longer]
        raw = raw >> np.uint64(7)
        index += 1
