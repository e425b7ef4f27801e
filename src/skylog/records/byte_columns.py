"""Copies fields out of a buffer into an Arrow array, for all records at once. Requires pyarrow."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Integers = NDArray[np.int64]


class FieldSpan(NamedTuple):
    """The position of one field in every record. Length -1 means null."""

    starts: Integers
    lengths: Integers

    def select(self, rows: NDArray[Any]) -> FieldSpan:
        return FieldSpan(self.starts[rows], self.lengths[rows])


def gather(buffer: pa.Buffer, span: FieldSpan) -> pa.Array:
    """Copy the bytes of `span` from `buffer` into one array. Rows with a negative length are null.

    Arrow does the copying: it sees fields and the gaps between them as one array, and takes every other element.
    """
    starts, lengths = span
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    null = lengths < 0
    has_nulls = bool(null.any())
    edges = np.empty(2 * count, dtype=np.int32)
    edges[0::2] = starts
    edges[1::2] = starts + (np.where(null, 0, lengths) if has_nulls else lengths)
    both = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(edges), buffer])
    picks = pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=null if has_nulls else None)
    return both.take(picks)
