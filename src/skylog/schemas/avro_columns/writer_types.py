"""Parses the schema that messages were written with. Accepts what a registry has stored: it does not look for mistakes.

Logical types that are unknown or do not fit are ignored, as Avro's specification says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from skylog.errors import SkylogError

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
MISSING: Final = object()
"""The default of a field that has none."""

_LOGICAL: Final = {
    "date": ("int",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "timestamp-nanos": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "local-timestamp-nanos": ("long",),
    "decimal": ("bytes", "fixed"),
}


class WriterTypeError(SkylogError):
    """A schema that is not Avro, or that refers to an unknown name."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A type without parts. `kind` is Avro's name of it, `logical` the logical type if it makes a difference."""

    kind: str
    logical: str | None = None
    size: int = 0
    symbols: tuple[str, ...] = ()
    precision: int = 0
    scale: int = 0


@dataclass(slots=True, eq=False)
class RecordField:
    """A field of a record. `default` is JSON as in the schema, or MISSING."""

    name: str
    type: WriterType
    default: Any = MISSING


@dataclass(slots=True, eq=False)
class Record:
    """A record, which may contain itself."""

    name: str
    fields: list[RecordField] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Items:
    """An array, or a map, whose keys are strings."""

    is_map: bool
    item: WriterType


@dataclass(slots=True, eq=False)
class Union:
    branches: list[WriterType]


WriterType = Leaf | Record | Items | Union


def parse_writer(text: str, references: Mapping[str, str] | None = None) -> WriterType:
    """Parse a schema. `references` has the texts of the schemas that it uses, dependencies first."""
    parser = _Parser()
    try:
        for each in (references or {}).values():
            parser.parse(json.loads(each), "")
        return parser.parse(json.loads(text), "")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WriterTypeError(f"not an Avro schema: {error!r}") from error


class _Parser:
    """Knows the named types so far."""

    def __init__(self) -> None:
        self._names: dict[str, WriterType] = {}

    def parse(self, schema: Any, namespace: str) -> WriterType:
        if isinstance(schema, str):
            return self._named(schema, namespace)
        if isinstance(schema, list):
            return Union([self.parse(each, namespace) for each in schema])
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema, namespace)
        if kind in ("enum", "fixed"):
            name, _ = _full_name(schema, namespace)
            made = _enum(schema) if kind == "enum" else _logical(Leaf("fixed", size=int(schema["size"])), schema)
            self._names[name] = made
            return made
        if kind == "array":
            return Items(False, self.parse(schema["items"], namespace))
        if kind == "map":
            return Items(True, self.parse(schema["values"], namespace))
        if kind in PRIMITIVES:
            return _logical(Leaf(kind), schema)
        return self.parse(kind, namespace)  # {"type": {"type": ...}}

    def _named(self, name: str, namespace: str) -> WriterType:
        if name in PRIMITIVES:
            return Leaf(name)
        found = (
            self._names.get(name) if "." in name else self._names.get(_joined(namespace, name), self._names.get(name))
        )
        if found is None:
            raise WriterTypeError(f"the schema refers to '{name}', which is not defined")
        return found

    def _record(self, schema: Mapping[str, Any], namespace: str) -> Record:
        name, own = _full_name(schema, namespace)
        record = Record(name)
        self._names[name] = record
        for each in schema["fields"]:
            record.fields.append(RecordField(each["name"], self.parse(each["type"], own), each.get("default", MISSING)))
        return record


def _enum(schema: Mapping[str, Any]) -> Leaf:
    return Leaf("enum", symbols=tuple(schema["symbols"]))


def _logical(leaf: Leaf, schema: Mapping[str, Any]) -> Leaf:
    logical = schema.get("logicalType")
    if leaf.kind not in _LOGICAL.get(logical or "", ()):
        return leaf
    if logical != "decimal":
        return Leaf(leaf.kind, logical, leaf.size)
    precision, scale = schema.get("precision", 0), schema.get("scale", 0)
    fits = isinstance(precision, int) and isinstance(scale, int) and 0 < precision <= 38 and 0 <= scale <= precision
    return Leaf(leaf.kind, "decimal", leaf.size, precision=precision, scale=scale) if fits else leaf


def _full_name(schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    """Return the full name of a type, and the namespace of names inside it."""
    name = schema["name"]
    if "." in name:
        return name, name.rpartition(".")[0]
    own = schema.get("namespace", namespace) or ""
    return _joined(own, name), own


def _joined(namespace: str, name: str) -> str:
    return f"{namespace}.{name}" if namespace else name
