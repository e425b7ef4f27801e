"""Decodes one message, for the few that a plan leaves out: those with very long arrays, and very long decimals.

Returns Python values for Arrow. A union needs the number of its branch, which libraries for Avro do not return.
"""

from __future__ import annotations

import struct
from decimal import Decimal, localcontext
from typing import Any, Final

import pyarrow as pa

from skylog.schemas.avro_columns.plan import MOST_EMPTY_ITEMS, constant, has_members
from skylog.schemas.avro_columns.shape import Shape, to_micros, union_member
from skylog.schemas.avro_columns.writer_types import Items, Leaf, Record, Union, WriterType

_SIZES: Final = {"boolean": 1, "float": 4, "double": 8}
_FLOATS: Final = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}


class MalformedError(ValueError):
    """The bytes are no message of the schema."""


class SingleReader:
    """Reads a message from its begin to its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read(self, kind: WriterType, shape: Shape | None) -> Any:
        """Return a value for a column of this shape, or move behind it if there is none. Raises MalformedError."""
        if isinstance(kind, Union):
            return self._union(kind, shape)
        if isinstance(kind, Record):
            return self._record(kind, shape)
        if isinstance(kind, Items):
            return self._items(kind, shape)
        found = self._leaf(kind)
        return None if shape is None else _for_column(found, kind, shape.arrow)

    def _record(self, kind: Record, shape: Shape | None) -> dict[str, Any] | None:
        found: dict[str, Any] = {}
        for each in kind.fields:
            part = None if shape is None else shape.parts.get(each.name)
            value = self.read(each.type, part)
            if part is not None:
                found[each.name] = value
        if shape is None:
            return None
        for name, part in shape.parts.items():
            if name not in found:
                found[name] = constant(shape.defaults.get(name), part)[0].as_py()
        return found

    def _union(self, kind: Union, shape: Shape | None) -> Any:
        number = self._long()
        if not 0 <= number < len(kind.branches):
            raise MalformedError(f"branch {number} of a union of {len(kind.branches)}")
        branch = kind.branches[number]
        if shape is None or not has_members(kind, shape) or branch == Leaf("null"):
            return self.read(branch, shape)
        member = union_member(sum(each != Leaf("null") for each in kind.branches[:number]))
        return {member: self.read(branch, shape.parts[member])}

    def _items(self, kind: Items, shape: Shape | None) -> list[Any]:
        part = None if shape is None else shape.parts[""]
        found: list[Any] = []
        while count := self._long():
            if count < 0:
                count = -count
                self._long()
            if count > max(len(self._data) - self._at, MOST_EMPTY_ITEMS):
                raise MalformedError(f"{count} items")
            for _ in range(count):
                key = self._take(self._long()).decode() if kind.is_map else None
                value = self.read(kind.item, part)
                found.append((key, value) if kind.is_map else value)
        return found

    def _leaf(self, leaf: Leaf) -> Any:
        kind = leaf.kind
        if kind == "null":
            return None
        if kind in ("int", "long"):
            return self._long()
        if kind in ("string", "bytes"):
            return self._take(self._long())
        if kind == "enum":
            number = self._long()
            if not 0 <= number < len(leaf.symbols):
                raise MalformedError(f"symbol {number} of {len(leaf.symbols)}")
            return leaf.symbols[number].encode()
        raw = self._take(_SIZES.get(kind, leaf.size))
        if kind == "boolean":
            return raw != b"\x00"
        return _FLOATS[kind].unpack(raw)[0] if kind in _FLOATS else raw

    def _long(self) -> int:
        raw = shift = 0
        while True:
            byte = self._take(1)[0]
            raw |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if raw >> 64:
            raise MalformedError("an integer with more than 64 bits")
        return (raw >> 1) ^ -(raw & 1)

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise MalformedError("the message ends too early")
        found = self._data[self._at : end]
        self._at = end
        return found


def _for_column(value: Any, leaf: Leaf, column: pa.DataType) -> Any:
    if value is None:
        return None
    if leaf.logical == "decimal":
        with localcontext(prec=len(value) * 3 + 1):
            return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-leaf.scale)
    if leaf.logical is not None:
        return to_micros(value, leaf.logical)
    if isinstance(value, bytes) and pa.types.is_string(column):
        return value.decode()
    return float(value) if pa.types.is_floating(column) else value
