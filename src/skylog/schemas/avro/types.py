"""The types of Avro, as a graph: a named type is one object, wherever it is used, also within itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")

Props = Mapping[str, Any]
"""Attributes that Avro does not know, and logical types: they are kept, and do not matter for resolution."""


class Name(NamedTuple):
    """A full name in its two parts. The namespace is empty if there is none."""

    namespace: str
    name: str

    @property
    def full(self) -> str:
        return f"{self.namespace}.{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True, eq=False)
class Primitive:
    kind: str
    props: Props


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    items: AvroType
    props: Props
    kind: str = "array"


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    values: AvroType
    props: Props
    kind: str = "map"


@dataclass(frozen=True, slots=True, eq=False)
class Union:
    branches: tuple[AvroType, ...]
    kind: str = "union"


@dataclass(frozen=True, slots=True, eq=False)
class Enum:
    name: Name
    aliases: tuple[Name, ...]
    doc: str | None
    props: Props
    symbols: tuple[str, ...]
    default: str | None
    kind: str = "enum"


@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    name: Name
    aliases: tuple[Name, ...]
    doc: str | None
    props: Props
    size: int
    kind: str = "fixed"


class NoDefault:
    """The default of a field that has none. (null is a default.)"""


NO_DEFAULT: Final = NoDefault()


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    name: str
    type: AvroType
    doc: str | None
    default: Any
    order: str
    aliases: tuple[str, ...]
    props: Props

    @property
    def has_default(self) -> bool:
        return self.default is not NO_DEFAULT


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    name: Name
    aliases: tuple[Name, ...]
    doc: str | None
    props: Props
    is_error: bool
    fields: list[Field] = field(default_factory=list)
    """Filled when the fields are parsed, which may use the record itself."""
    kind: str = "record"


Named = Record | Enum | Fixed
AvroType = Primitive | Array | Map | Union | Record | Enum | Fixed
