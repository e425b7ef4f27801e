"""The Avro schema of a dataclass or a pydantic model, and the conversion of its objects, which checks every field.

| Python | Avro |
|---|---|
| bool, int, float, str, bytes | boolean, long, double, string, bytes |
| datetime, date, time | timestamp-micros, date, time-micros |
| Decimal | decimal with 38 digits, 9 of them decimal places, unless annotated with others |
| UUID; an Enum | string (uuid); enum of the names of the members |
| list, tuple[T, ...], set; dict with text keys | array; map |
| T or None; other unions | a union with null; a union |
| a dataclass, a pydantic model | record |

A field's default becomes its default in the schema, and None is the default of every field that may be None.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections import abc
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from typing import Any, Final, NamedTuple

from skylog.schemas.field_types import (
    PLAIN,
    AvroType,
    Convert,
    EventClassError,
    MisfitError,
    array_type,
    decimal_type,
    literal_type,
    map_type,
)

_NO_DEFAULT: Final = object()
_ARRAYS: Final = (list, set, frozenset, abc.Sequence, abc.Set, abc.Collection, abc.Iterable)
_MAPS: Final = (dict, abc.Mapping, abc.MutableMapping)
_EMPTY_FACTORIES: Final = (list, dict, set, tuple, frozenset)
_DIGITS, _PLACES = 38, 9


class Field(NamedTuple):
    """A field of a class, with its default, or _NO_DEFAULT."""

    name: str
    hint: Any
    default: Any


class ClassSchemas:
    """Derives schemas of classes. A class that occurs twice is defined at its first place, as Avro requires."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._defined: dict[type, AvroType] = {}
        self._names: dict[str, type] = {}

    def record(self, kind: type) -> AvroType:
        """Return the record of a dataclass or pydantic model. Raises EventClassError."""
        self._claim(kind)
        branch = f"{self._namespace}.{kind.__name__}"
        converters: list[tuple[str, Convert]] = []

        def convert(value: Any) -> dict[str, Any]:
            if not isinstance(value, kind):
                raise MisfitError(f"a {kind.__name__}", value)
            found = {}
            for name, convert_field in converters:
                try:
                    found[name] = convert_field(getattr(value, name))
                except MisfitError as error:
                    raise error.inside(name) from None
            return found

        self._defined[kind] = AvroType(branch, convert, f"a {kind.__name__}", branch)
        fields = []
        for each in _fields(kind):
            try:
                found = self._type(each.hint, each.default)
            except EventClassError as error:
                raise EventClassError(f"{kind.__name__}.{each.name}: {error}") from None
            converters.append((each.name, found.convert))
            default = _default(each, found)
            fields.append(
                {"name": each.name, "type": found.schema} | ({} if default is _NO_DEFAULT else {"default": default})
            )
        schema = {"type": "record", "name": kind.__name__, "namespace": self._namespace, "fields": fields}
        return AvroType(schema, convert, f"a {kind.__name__}", branch)

    def _claim(self, kind: type) -> None:
        other = self._names.setdefault(kind.__name__, kind)
        if other is not kind:
            raise EventClassError(f"two classes have the name {kind.__name__}; rename one of them")

    def _type(self, hint: Any, default: Any = _NO_DEFAULT) -> AvroType:
        hint, digits = _unwrapped(hint)
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if hint in PLAIN:
            return PLAIN[hint]
        if hint is Decimal:
            return decimal_type(*(digits or (_DIGITS, _PLACES)))
        if origin in (typing.Union, types.UnionType):
            return self._union(arguments, default)
        if origin is typing.Literal:
            return literal_type(arguments)
        if origin in _ARRAYS or (origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis):
            return array_type(self._type(arguments[0]))
        if origin in _MAPS and arguments[0] is str:
            return map_type(self._type(arguments[1]))
        if isinstance(hint, type):
            if hint in self._defined:
                return self._defined[hint]
            if issubclass(hint, Enum):
                return self._enum(hint)
            if dataclasses.is_dataclass(hint) or hasattr(hint, "model_fields"):
                return self.record(hint)
        raise EventClassError(
            f"{getattr(hint, '__name__', hint)} has no Avro type; use one of bool, int, float, str, bytes, datetime, "
            "date, time, Decimal, UUID, an Enum, list[T], dict[str, T], a dataclass or a pydantic model"
        )

    def _enum(self, kind: type[Enum]) -> AvroType:
        self._claim(kind)
        symbols = [member.name for member in kind]
        name = f"one of {', '.join(symbols)}"

        def convert(value: Any) -> str:
            if isinstance(value, kind):
                return value.name
            raise MisfitError(f"a {kind.__name__} ({name})", value)

        branch = f"{self._namespace}.{kind.__name__}"
        self._defined[kind] = AvroType(branch, convert, name, branch)
        schema = {"type": "enum", "name": kind.__name__, "namespace": self._namespace, "symbols": symbols}
        return AvroType(schema, convert, name, branch)

    def _union(self, arguments: tuple[Any, ...], default: Any) -> AvroType:
        branches = [self._type(each) for each in arguments if each is not types.NoneType]
        is_nullable = types.NoneType in arguments
        names = " or ".join([each.name for each in branches] + (["None"] if is_nullable else []))
        if default not in (None, _NO_DEFAULT):
            branches.sort(key=lambda each: not _takes(each, default))  # a default is of the first branch
        if len({each.branch for each in branches}) < len(branches):
            raise EventClassError(f"a union of {names} has two branches of one Avro type")
        schemas: list[Any] = [each.schema for each in branches]
        if is_nullable:
            schemas.insert(0 if default in (None, _NO_DEFAULT) else len(schemas), "null")
        if len(branches) == 1:
            (only,) = branches

            def convert_nullable(value: Any) -> Any:
                if value is None:
                    return None
                try:
                    return only.convert(value)
                except MisfitError as error:
                    if not error.path:
                        error.expected = names
                    raise

            return AvroType(schemas, convert_nullable, names, "union")

        def convert(value: Any) -> Any:
            if value is None and is_nullable:
                return None
            for each in branches:
                try:
                    return (each.branch, each.convert(value))
                except MisfitError:
                    continue
            raise MisfitError(names, value)

        return AvroType(schemas, convert, names, "union")


def _takes(kind: AvroType, value: object) -> bool:
    try:
        kind.convert(value)
    except MisfitError:
        return False
    return True


def _fields(kind: type) -> list[Field]:
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except NameError as error:
        raise EventClassError(f"{kind.__name__}: {error}; define the type before the class is used") from None
    if dataclasses.is_dataclass(kind):
        return [Field(each.name, hints[each.name], _dataclass_default(each)) for each in dataclasses.fields(kind)]
    fields: Mapping[str, Any] = getattr(kind, "model_fields", {})
    if not hasattr(kind, "model_fields"):
        raise EventClassError(f"{kind.__name__} is neither a dataclass nor a pydantic model")
    return [
        Field(
            name, typing.Annotated[hints[name], *each.metadata] if each.metadata else hints[name], _model_default(each)
        )
        for name, each in fields.items()
    ]


def _dataclass_default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory in _EMPTY_FACTORIES else _NO_DEFAULT


def _model_default(field: Any) -> Any:
    if field.default_factory is not None:
        return field.default_factory() if field.default_factory in _EMPTY_FACTORIES else _NO_DEFAULT
    return _NO_DEFAULT if field.is_required() else field.default


def _default(field: Field, kind: AvroType) -> Any:
    """Return the default in JSON as Avro writes it."""
    is_nullable = isinstance(kind.schema, list) and "null" in kind.schema
    if field.default is _NO_DEFAULT:
        return None if is_nullable else _NO_DEFAULT
    try:
        value = kind.convert(field.default)
    except MisfitError as error:
        raise EventClassError(f"the default of '{field.name}': {error}") from None
    return _json(value)


def _json(value: Any) -> Any:
    if isinstance(value, tuple):  # the branch of a union, and the value
        return _json(value[1])
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, dict):
        return {name: _json(each) for name, each in value.items()}
    return [_json(each) for each in value] if isinstance(value, list) else value


def _unwrapped(hint: Any) -> tuple[Any, tuple[int, int] | None]:
    """Return the type without annotations, and the digits and decimal places that they say."""
    digits = None
    while typing.get_origin(hint) is typing.Annotated:
        known = dict[str, int]()
        for note in (part for each in hint.__metadata__ for part in (each, *getattr(each, "metadata", ()))):
            for name in ("max_digits", "decimal_places"):
                if getattr(note, name, None) is not None:
                    known[name] = getattr(note, name)
        if known:
            digits = (known.get("max_digits", _DIGITS), known.get("decimal_places", 0))
        hint = hint.__origin__
    return hint, digits
