"""Whether the default of a field fits the field's type.

In a union it may be of any branch (Avro 1.12). Bytes are written as text with one character per byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from skylog.schemas.avro.types import Array, AvroType, Enum, Fixed, Map, Primitive, Record, Union

_BITS: Final = {"int": 31, "long": 63}


def default_problem(kind: AvroType, value: Any) -> str | None:
    """What is wrong with a default, or None."""
    match kind:
        case Primitive():
            return None if _is_primitive(kind.kind, value) else _expected(kind.kind, value)
        case Enum():
            return None if value in kind.symbols else _expected(f"a symbol of {kind.name.full}", value)
        case Fixed():
            fits = isinstance(value, str) and len(value) == kind.size and _is_primitive("bytes", value)
            return None if fits else _expected(f"{kind.size} bytes", value)
        case Array():
            if not isinstance(value, list):
                return _expected("array", value)
            return _first(default_problem(kind.items, item) for item in value)
        case Map():
            if not isinstance(value, dict):
                return _expected("map", value)
            return _first(default_problem(kind.values, item) for item in value.values())
        case Union():
            if any(default_problem(branch, value) is None for branch in kind.branches):
                return None
            return _expected(" or ".join(_title(branch) for branch in kind.branches), value)
        case Record():
            return _record_problem(kind, value)


def _record_problem(kind: Record, value: Any) -> str | None:
    if not isinstance(value, dict):
        return _expected(f"an object for {kind.name.full}", value)
    for field in kind.fields:
        if field.name in value:
            problem = default_problem(field.type, value[field.name])
            if problem is not None:
                return f"{field.name}: {problem}"
        elif not field.has_default:
            return f"the field {field.name} of {kind.name.full} is missing and has no default"
    return None


def _is_primitive(kind: str, value: Any) -> bool:
    match kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long":
            whole = isinstance(value, int) and not isinstance(value, bool)
            return whole and -(1 << _BITS[kind]) <= value < 1 << _BITS[kind]
        case "float" | "double":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "bytes":
            return isinstance(value, str) and all(ord(character) < 256 for character in value)
        case _:
            return isinstance(value, str)


def _title(kind: AvroType) -> str:
    return kind.name.full if isinstance(kind, Record | Enum | Fixed) else kind.kind


def _expected(what: str, value: Any) -> str:
    shown = json.dumps(value)
    return f"{shown if len(shown) <= 60 else shown[:57] + '...'} is not {what}"


def _first(problems: Iterable[str | None]) -> str | None:
    return next((problem for problem in problems if problem is not None), None)
