"""The parts of a declaration: version ranges, wire types, and fields.

The Python annotation of a field is its wire type. `str`, `bytes`, `bool`, `float` and `UUID` are used as they are.
Integers and record data use the aliases below, which add the width or role; type checkers read them as plain `int` and
bytes. `list[...]` is an array, a class declared with `@struct` is a structure, `... | None` is nullable.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final, TypeAlias, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from skylog.protocol.primitives import ZERO_UUID, Buffer

_NO_HIGH_END: Final = 32767


@dataclass(frozen=True, slots=True)
class Versions:
    """A closed range of versions, written as in Kafka's tables: `3-9`, `4+`, `2` or `none`."""

    low: int
    high: int

    @classmethod
    @cache
    def parse(cls, text: str) -> Versions:
        if text == "none":
            return cls(1, 0)
        if text.endswith("+"):
            return cls(int(text[:-1]), _NO_HIGH_END)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    def __str__(self) -> str:
        return f"{self.low}-{self.high}"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A fixed-size value with its `struct` code."""

    code: str
    size: int


@dataclass(frozen=True, slots=True)
class Text:
    """UTF-8 after its length: int16, or compact in flexible versions."""


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes after their length: int32, or compact. Record data is a blob that is read as a view, without a copy."""

    view: bool = False


@dataclass(frozen=True, slots=True)
class Array:
    """Items after their count: int32, or compact."""

    item: Kind


@dataclass(frozen=True, slots=True)
class Structure:
    """The fields of `cls`, one after the other, and a tagged section in flexible versions.

    A nullable structure follows an int8: -1 for null, else 1.
    """

    cls: type


@dataclass(frozen=True, slots=True)
class Id:
    """A UUID of sixteen bytes; all zero means none."""


Kind: TypeAlias = Scalar | Text | Blob | Array | Structure | Id

Int8 = Annotated[int, Scalar("b", 1)]
Int16 = Annotated[int, Scalar("h", 2)]
UInt16 = Annotated[int, Scalar("H", 2)]
Int32 = Annotated[int, Scalar("i", 4)]
UInt32 = Annotated[int, Scalar("I", 4)]
Int64 = Annotated[int, Scalar("q", 8)]
Records = Annotated[Buffer, Blob(view=True)]

_PLAIN_KINDS: Final[dict[object, Kind]] = {
    bool: Scalar("?", 1),
    float: Scalar("d", 8),
    str: Text(),
    bytes: Blob(),
    UUID: Id(),
}


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One field of a message or structure, for all versions.

    `default` is the value that a reader sets for a version without the field: the declared default, or the zero of the
    kind. A field with a `tag` is in the tagged section of every version that has it, and only if it differs from its
    default; a tagged structure is declared `... | None`, and `None` means that it is not sent.
    """

    name: str
    kind: Kind
    versions: Versions
    nullable: Versions
    tag: int | None
    default: object


def field(
    versions: str,
    *,
    nullable: str = "none",
    tag: int | None = None,
    default: Any = dataclasses.MISSING,
    default_factory: Callable[[], Any] | Any = dataclasses.MISSING,
) -> Any:
    """Declare a field: the versions that have it, those in which it is nullable, its tag, its default.

    With a default the constructor's argument is optional, without one it is required. A value for a version without the
    field is silently dropped on write: handlers set all fields, and the version decides which are sent.
    """
    metadata = {
        "versions": Versions.parse(versions),
        "nullable": Versions.parse(nullable),
        "tag": tag,
    }
    declared: Any = dataclasses.field(default=default, default_factory=default_factory, metadata=metadata)
    return declared


def field_specs(cls: type) -> tuple[FieldSpec, ...]:
    """Return the fields of a declared class, in wire order."""
    return _field_specs(cls)


@cache
def _field_specs(cls: type) -> tuple[FieldSpec, ...]:
    hints = get_type_hints(cls, include_extras=True)
    return tuple(_field_spec(declared, hints[declared.name]) for declared in dataclasses.fields(cls))


def _field_spec(declared: dataclasses.Field[Any], hint: object) -> FieldSpec:
    kind, optional = _kind_of(hint)
    nullable: Versions = declared.metadata["nullable"]
    tag: int | None = declared.metadata["tag"]
    may_be_none = nullable.low <= nullable.high or (isinstance(kind, Structure) and tag is not None)
    if optional != may_be_none:
        raise TypeError(f"{declared.name}: annotation {hint} and nullable={nullable} disagree")
    if declared.default is not dataclasses.MISSING:
        default = declared.default
    elif declared.default_factory is not dataclasses.MISSING:
        default = declared.default_factory()
    else:
        default = zero_of(kind)
    return FieldSpec(declared.name, kind, declared.metadata["versions"], nullable, tag, default)


def _kind_of(hint: object) -> tuple[Kind, bool]:
    if get_origin(hint) in (Union, types.UnionType):
        (inner,) = (arg for arg in get_args(hint) if arg is not types.NoneType)
        return _kind_of(inner)[0], True
    if get_origin(hint) is Annotated:
        kind: Kind = get_args(hint)[1]
        return kind, False
    if get_origin(hint) is list:
        return Array(_kind_of(get_args(hint)[0])[0]), False
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return Structure(hint), False
    return _PLAIN_KINDS[hint], False


def zero_of(kind: Kind) -> object:
    """Return the value of a field without a declared default."""
    match kind:
        case Scalar(code="?"):
            return False
        case Scalar():
            return 0
        case Text():
            return ""
        case Blob():
            return b""
        case Array():
            return []
        case Id():
            return ZERO_UUID
        case Structure():
            return None


def min_size(kind: Kind, version: int, flexible: bool) -> int:
    """Return the minimum size of a value of `kind`, which bounds the number of items in an array."""
    match kind:
        case Scalar():
            return kind.size
        case Id():
            return 16
        case Text():
            return 1 if flexible else 2
        case Blob() | Array():
            return 1 if flexible else 4
        case Structure():
            fields = (spec for spec in field_specs(kind.cls) if spec.tag is None and version in spec.versions)
            return sum(_min_field_size(spec, version, flexible) for spec in fields) + flexible


def _min_field_size(spec: FieldSpec, version: int, flexible: bool) -> int:
    if isinstance(spec.kind, Structure) and version in spec.nullable:
        return 1  # the null marker
    return min_size(spec.kind, version, flexible)
