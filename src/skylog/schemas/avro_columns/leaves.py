"""Nodes that read one field without parts, of all messages at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skylog.records.byte_columns import FieldSpan, gather
from skylog.schemas.avro_columns.cursor import Cursor, Integers
from skylog.schemas.avro_columns.shape import leaf_type, to_micros
from skylog.schemas.avro_columns.writer_types import Leaf

_DECIMAL_BYTES: Final = 16
_INT_LIMIT: Final = 1 << 31


class LeafNode:
    """Reads a leaf as its own Arrow type, and converts it to the column's."""

    def __init__(self, leaf: Leaf, column: pa.DataType) -> None:
        self._leaf = leaf
        self._column = column
        self._read = _reader(leaf)

    def read(self, cursor: Cursor) -> pa.Array:
        found = self._read(cursor, self._leaf)
        return found if found.type == self._column else _converted(found, self._column, cursor)

    def skip(self, cursor: Cursor) -> None:
        leaf = self._leaf
        if leaf.kind == "null":
            return
        if leaf.kind in ("int", "long", "enum"):
            cursor.read_longs()
        elif leaf.kind in ("string", "bytes"):
            cursor.read_spans()
        else:
            cursor.skip({"boolean": 1, "float": 4, "double": 8}.get(leaf.kind, leaf.size))


def _reader(leaf: Leaf) -> Callable[[Cursor, Leaf], pa.Array]:
    if leaf.logical == "decimal":
        return _decimal
    return {
        "null": _null,
        "boolean": _boolean,
        "int": _int,
        "long": _long,
        "float": _float,
        "double": _double,
        "bytes": _bytes,
        "fixed": _fixed,
        "string": _string,
        "enum": _enum,
    }[leaf.kind]


def _null(cursor: Cursor, _: Leaf) -> pa.Array:
    return pa.nulls(len(cursor))


def _boolean(cursor: Cursor, _: Leaf) -> pa.Array:
    return pa.array(cursor.read_bytes() != 0)


def _int(cursor: Cursor, leaf: Leaf) -> pa.Array:
    found = cursor.read_longs()
    wrong = (found < -_INT_LIMIT) | (found >= _INT_LIMIT)
    if wrong.any():
        cursor.fail(wrong)
    numbers = pa.array(found.astype(np.int32))
    return numbers.view(pa.date32()) if leaf.logical == "date" else numbers


def _long(cursor: Cursor, leaf: Leaf) -> pa.Array:
    found = cursor.read_longs()
    if leaf.logical is None:
        return pa.array(found)
    micros = to_micros(found, leaf.logical)
    if leaf.logical.endswith("millis"):
        wrong = micros // 1000 != found
        if wrong.any():
            cursor.fail(wrong)
    return pa.array(micros).view(leaf_type(leaf))


def _float(cursor: Cursor, _: Leaf) -> pa.Array:
    return pa.array(cursor.read_words("<f4"))


def _double(cursor: Cursor, _: Leaf) -> pa.Array:
    return pa.array(cursor.read_words("<f8"))


def _bytes(cursor: Cursor, _: Leaf) -> pa.Array:
    return gather(pa.py_buffer(cursor.buffer.bytes), FieldSpan(*cursor.read_spans()))


def _fixed(cursor: Cursor, leaf: Leaf) -> pa.Array:
    spans = cursor.spans(np.full(len(cursor), leaf.size, np.int64))
    return gather(pa.py_buffer(cursor.buffer.bytes), FieldSpan(*spans))


def _string(cursor: Cursor, _: Leaf) -> pa.Array:
    return as_text(_bytes(cursor, _), cursor)


def as_text(found: pa.Array, cursor: Cursor) -> pa.Array:
    """Return bytes as text. Messages with bytes that are not UTF-8 are bad."""
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [_text(each) for each in found.to_pylist()]
        cursor.fail(np.array([text is None for text in texts]) & found.is_valid().to_numpy(zero_copy_only=False))
        return pa.array(texts, pa.string())


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _enum(cursor: Cursor, leaf: Leaf) -> pa.Array:
    found = cursor.read_longs()
    wrong = (found < 0) | (found >= len(leaf.symbols))
    if wrong.any():
        cursor.fail(wrong)
        found = np.where(wrong, 0, found)
    return pa.array(leaf.symbols, pa.string()).take(pa.array(found))


def _decimal(cursor: Cursor, leaf: Leaf) -> pa.Array:
    lengths = np.full(len(cursor), leaf.size, np.int64) if leaf.kind == "fixed" else cursor.read_longs()
    starts, lengths = cursor.spans(lengths)
    too_long = lengths > _DECIMAL_BYTES
    if too_long.any():
        cursor.give_up(too_long)
        lengths = np.where(too_long, 0, lengths)
    exact = pa.decimal128(38, leaf.scale)
    raw = pa.py_buffer(_little_endian(cursor.buffer.bytes, starts, lengths))
    return _converted(pa.Array.from_buffers(exact, len(starts), [None, raw]), leaf_type(leaf), cursor)


def _little_endian(data: NDArray[np.uint8], starts: Integers, lengths: Integers) -> NDArray[np.uint8]:
    """Return integers of up to 16 bytes, highest byte first, as integers of 16 bytes, lowest byte first."""
    negative = (lengths > 0) & (data.take(starts, mode="clip") >= 0x80)
    sign = np.where(negative, 0xFF, 0).astype(np.uint8)
    found = np.empty((len(starts), _DECIMAL_BYTES), np.uint8)
    for place in range(_DECIMAL_BYTES):
        found[:, place] = np.where(place < lengths, data.take(starts + lengths - 1 - place, mode="clip"), sign)
    return found


def _converted(found: pa.Array, column: pa.DataType, cursor: Cursor) -> pa.Array:
    """Return the values as the column's type. Messages with a value that does not fit are bad."""
    if pa.types.is_null(found.type):
        return pa.nulls(len(found), column)
    if column == pa.string():
        return as_text(found, cursor)
    try:
        return found.cast(column, safe=not pa.types.is_floating(column))
    except pa.ArrowInvalid:
        fits = [_fits(each, column) for each in found]
        cursor.fail(~np.array(fits))
        return pa.nulls(len(found), column)


def _fits(value: Any, column: pa.DataType) -> bool:
    try:
        value.cast(column)
    except pa.ArrowInvalid:
        return False
    return True
