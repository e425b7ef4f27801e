"""Keywords with a number, a pattern or a list of values: which of their changes refuse data that was accepted."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from fractions import Fraction
from typing import Any, Final, NamedTuple

from skylog.schemas.json_schema.shapes import Found, Shape


class _Limit(NamedTuple):
    word: str
    name: str
    is_upper: bool


_LIMITS: Final = {
    "string": (_Limit("maxLength", "MAX_LENGTH", True), _Limit("minLength", "MIN_LENGTH", False)),
    "number": (
        _Limit("maximum", "MAXIMUM", True),
        _Limit("minimum", "MINIMUM", False),
        _Limit("exclusiveMaximum", "EXCLUSIVE_MAXIMUM", True),
        _Limit("exclusiveMinimum", "EXCLUSIVE_MINIMUM", False),
    ),
    "object": (
        _Limit("maxProperties", "MAX_PROPERTIES", True),
        _Limit("minProperties", "MIN_PROPERTIES", False),
    ),
    "array": (
        _Limit("maxItems", "MAX_ITEMS", True),
        _Limit("minItems", "MIN_ITEMS", False),
        _Limit("maxContains", "MAX_CONTAINS", True),
        _Limit("minContains", "MIN_CONTAINS", False),
    ),
}


def limit_differences(original: Shape, update: Shape) -> Iterator[Found]:
    """Limits that are new or tighter."""
    for limit in _LIMITS.get(update.kind, ()):
        before, after = _value(original, limit), _value(update, limit)
        if after is None or after == before:
            continue
        if before is None:
            yield f"{limit.name}_ADDED", (limit.word,)
        elif limit.is_upper and after < before:
            yield f"{limit.name}_DECREASED", (limit.word,)
        elif not limit.is_upper and after > before:
            yield f"{limit.name}_INCREASED", (limit.word,)


def _value(shape: Shape, limit: _Limit) -> Any:
    value = shape.get(limit.word)
    if value is True and limit.word.startswith("exclusive"):  # draft 4: the maximum or minimum itself is excluded
        return shape.get("maximum" if limit.is_upper else "minimum")
    return None if isinstance(value, bool) else value


def string_differences(original: Shape, update: Shape) -> Iterator[Found]:
    before, after = original.get("pattern"), update.get("pattern")
    if after is not None and after != before:
        yield "PATTERN_ADDED" if before is None else "PATTERN_CHANGED", ("pattern",)


def number_differences(original: Shape, update: Shape) -> Iterator[Found]:
    before, after = original.get("multipleOf"), update.get("multipleOf")
    if after is not None and after != before:
        if before is None:
            yield "MULTIPLE_OF_ADDED", ("multipleOf",)
        elif _divides(before, after):
            yield "MULTIPLE_OF_EXPANDED", ("multipleOf",)
        elif not _divides(after, before):
            yield "MULTIPLE_OF_CHANGED", ("multipleOf",)
    if update.is_integer and not original.is_integer:
        yield "TYPE_NARROWED", ()


def _divides(part: float, whole: float) -> bool:
    return Fraction(str(whole)) % Fraction(str(part)) == 0


def enum_differences(original: Shape, update: Shape) -> Iterator[Found]:
    before, after = (frozenset(map(_frozen, shape.get("enum"))) for shape in (original, update))
    if not before <= after:
        yield "ENUM_ARRAY_NARROWED" if after <= before else "ENUM_ARRAY_CHANGED", ("enum",)


def const_differences(original: Shape, update: Shape) -> Iterator[Found]:
    if _frozen(original.get("const")) != _frozen(update.get("const")):
        yield "ENUM_ARRAY_CHANGED", ("const",)


def _frozen(value: Any) -> Hashable:
    """Equal for what is equal as JSON: 1 is 1.0, but true is not 1."""
    match value:
        case list():
            return "array", tuple(map(_frozen, value))
        case dict():
            return "object", frozenset((name, _frozen(each)) for name, each in value.items())
    return isinstance(value, bool), value
