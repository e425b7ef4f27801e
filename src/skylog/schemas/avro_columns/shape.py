"""The columns that messages are decoded to: an Arrow type with the defaults of its fields. Merges versions of a schema.

| Avro | Arrow |
|---|---|
| record, array, map | struct, list, map |
| null and one other type | that type: every column may be null |
| a union of types that one type can hold | that type |
| another union | a struct with a field member0, member1, ... for each type |
| enum, string with a logical type | string |
| bytes and fixed; decimal; date | binary; decimal128; date32 |
| timestamp-*, local-timestamp-* | timestamp in microseconds, UTC or without a zone |
| time-millis, time-micros | the number |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from skylog.errors import SkylogError
from skylog.schemas.avro_columns.writer_types import MISSING, Items, Leaf, Record, Union, WriterType

UTC_TIME: Final = pa.timestamp("us", tz="UTC")
LOCAL_TIME: Final = pa.timestamp("us")

_LEAVES: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_NUMBERS: Final = (pa.int32(), pa.int64(), pa.float32(), pa.float64())


class ShapeError(SkylogError):
    """Schemas that do not fit into one set of columns. The message names the field."""


@dataclass(frozen=True)
class Shape:
    """A type and its parts: the fields of a struct by name, the item of a list or the value of a map by the empty name.

    `defaults` has the values of fields that a message lacks, as JSON with numbers for times and text for decimals.
    """

    arrow: pa.DataType
    parts: dict[str, Shape] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of_arrow(cls, kind: pa.DataType) -> Shape:
        """Return the shape of a type, without defaults."""
        if pa.types.is_struct(kind):
            return cls(kind, {each.name: cls.of_arrow(each.type) for each in kind})
        if pa.types.is_list(kind):
            return cls(kind, {"": cls.of_arrow(kind.value_type)})
        if pa.types.is_map(kind):
            return cls(kind, {"": cls.of_arrow(kind.item_type)})
        return cls(kind)


def struct(parts: dict[str, Shape], defaults: dict[str, Any] | None = None) -> Shape:
    return Shape(pa.struct([(name, part.arrow) for name, part in parts.items()]), parts, defaults or {})


def items(item: Shape, *, is_map: bool) -> Shape:
    kind = pa.map_(pa.string(), item.arrow) if is_map else pa.list_(pa.field("element", item.arrow))
    return Shape(kind, {"": item})


def shape_of_versions(versions: Iterable[WriterType]) -> Shape:
    """Return the columns of records: the fields of all versions, oldest first. Raises ShapeError."""
    found: Shape | None = None
    for version in versions:
        if not isinstance(version, Record):
            raise ShapeError("the schema is no record, so it has no columns; read the value and decode it yourself")
        shape = shape_of(version)
        found = shape if found is None else merged(found, shape)
    if found is None:
        raise ShapeError("there is no version of the schema")
    return _storable(found)


def shape_of(kind: WriterType, path: str = "", inside: tuple[Record, ...] = ()) -> Shape:
    """Return the columns of one schema."""
    match kind:
        case Leaf():
            return Shape(leaf_type(kind))
        case Items():
            return items(shape_of(kind.item, path, inside), is_map=kind.is_map)
        case Union():
            return _union(kind, path, inside)
        case Record():
            if kind in inside:
                raise ShapeError(
                    f"field '{path}': record {kind.name} contains itself, which columns cannot; "
                    "give the fields that you need as valueSchema"
                )
            parts = {
                each.name: shape_of(each.type, f"{path}.{each.name}".lstrip("."), (*inside, kind))
                for each in kind.fields
            }
            defaults = {
                each.name: normalised(each.default, each.type) for each in kind.fields if each.default is not MISSING
            }
            return struct(parts, {name: value for name, value in defaults.items() if value is not None})


def leaf_type(leaf: Leaf) -> pa.DataType:
    if leaf.logical == "decimal":
        return pa.decimal128(leaf.precision, leaf.scale)
    if leaf.logical == "date":
        return pa.date32()
    if leaf.logical is not None:
        return LOCAL_TIME if leaf.logical.startswith("local") else UTC_TIME
    return _LEAVES[leaf.kind]


def union_member(number: int) -> str:
    return f"member{number}"


def not_null(union: Union) -> list[WriterType]:
    return [each for each in union.branches if not (isinstance(each, Leaf) and each.kind == "null")]


def merged(older: Shape, newer: Shape, path: str = "") -> Shape:
    """Return the columns that hold both. Raises ShapeError if a field has types that no column holds."""
    a, b = older.arrow, newer.arrow
    if pa.types.is_null(a) or (a == b and not older.parts):
        return newer
    if pa.types.is_null(b):
        return older
    if pa.types.is_struct(a) and pa.types.is_struct(b):
        parts = dict(older.parts)
        for name, part in newer.parts.items():
            parts[name] = merged(parts[name], part, f"{path}.{name}".lstrip(".")) if name in parts else part
        kept = {name: value for name, value in older.defaults.items() if name not in newer.parts}
        return struct(parts, {**kept, **newer.defaults})
    if (pa.types.is_list(a) and pa.types.is_list(b)) or (pa.types.is_map(a) and pa.types.is_map(b)):
        return items(merged(older.parts[""], newer.parts[""], path), is_map=pa.types.is_map(a))
    wider = widest(a, b)
    if wider is None:
        raise ShapeError(
            f"field '{path}' is {a} in one schema and {b} in another, so it cannot be one column; choose the schemas "
            "with valueSubject, or give the fields that you need as valueSchema"
        )
    return Shape(wider)


def widest(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Return the type that holds the values of both, by Avro's promotions, or None."""
    if a == b:
        return a
    if a in _NUMBERS and b in _NUMBERS:
        if {a, b} == {pa.int64(), pa.float32()}:
            return pa.float64()  # a float has not the digits of a long
        return max(a, b, key=_NUMBERS.index)
    if {a, b} == {pa.string(), pa.binary()}:
        return pa.string()
    if pa.types.is_decimal(a) and pa.types.is_decimal(b):
        scale = max(a.scale, b.scale)
        precision = max(a.precision - a.scale, b.precision - b.scale) + scale
        return pa.decimal128(precision, scale) if precision <= 38 else None
    return None


def holds(column: pa.DataType, written: pa.DataType) -> bool:
    """Return whether a column takes values that were written with another type."""
    if {column, written} == {pa.string(), pa.binary()}:
        return True
    if column == pa.float32() and written == pa.int64():
        return True
    return bool(widest(column, written) == column)


def normalised(value: Any, kind: WriterType) -> Any:
    """Return a default as JSON for `constant`: times in microseconds, decimals as text."""
    match kind:
        case Union():
            return normalised(value, kind.branches[0])
        case Record():
            given = value if isinstance(value, dict) else {}
            found = {each.name: given.get(each.name, each.default) for each in kind.fields}
            return {
                each.name: normalised(found[each.name], each.type)
                for each in kind.fields
                if found[each.name] is not MISSING
            }
        case Items():
            if kind.is_map:
                return {key: normalised(each, kind.item) for key, each in value.items()}
            return [normalised(each, kind.item) for each in value]
        case Leaf():
            if value is None or kind.logical is None:
                return value
            if kind.logical == "decimal":
                unscaled = int.from_bytes(value.encode("latin-1"), "big", signed=True)
                return str(Decimal(unscaled).scaleb(-kind.scale))
            return to_micros(value, kind.logical)


def to_micros(value: Any, logical: str) -> Any:
    """Return a time of this logical type in microseconds, and a date as it is. Takes numbers and numpy arrays."""
    if logical.endswith("millis"):
        return value * 1000
    return value // 1000 if logical.endswith("nanos") else value


def _union(kind: Union, path: str, inside: tuple[Record, ...]) -> Shape:
    shapes = [shape_of(each, path, inside) for each in not_null(kind)]
    if not shapes:
        return Shape(pa.null())
    found = shapes[0]
    for other in shapes[1:]:
        wider = None if found.parts or other.parts else widest(found.arrow, other.arrow)
        if wider is None or {found.arrow, other.arrow} == {pa.string(), pa.binary()}:
            return struct({union_member(number): shape for number, shape in enumerate(shapes)})
        found = Shape(wider)
    return found


def _storable(shape: Shape) -> Shape:
    """Return the shape with text instead of a type that is always null, which Spark and tables do not have."""
    if pa.types.is_null(shape.arrow):
        return Shape(pa.string())
    parts = {name: _storable(part) for name, part in shape.parts.items()}
    if pa.types.is_struct(shape.arrow):
        return struct(parts, shape.defaults)
    return items(parts[""], is_map=pa.types.is_map(shape.arrow)) if parts else shape
