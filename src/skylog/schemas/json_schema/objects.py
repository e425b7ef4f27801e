"""Objects: properties, which of them are required, and what else is accepted."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import re2

from skylog.schemas.json_schema.combinations import Compare
from skylog.schemas.json_schema.content import Model, below, model, model_differences
from skylog.schemas.json_schema.nodes import Node, Raw
from skylog.schemas.json_schema.shapes import EMPTY, FALSE, Found, Shape, shape_of
from skylog.schemas.pairs import TooComplexError

MAX_MATCHES: Final = 500_000
"""Names that are matched with patterns, for two objects. It takes a second."""


def object_differences(original: Shape, update: Shape, compare: Compare) -> Iterator[Found]:
    yield from _required(original, update)
    yield from _properties(original, update, compare)
    yield from _dependencies(original, update, compare)
    for word, name in (
        ("additionalProperties", "ADDITIONAL_PROPERTIES"),
        ("unevaluatedProperties", "UNEVALUATED_PROPERTIES"),
    ):
        yield from model_differences(model(original, word), model(update, word), word, name, compare)


def _required(original: Shape, update: Shape) -> Iterator[Found]:
    new = set(_names(update)) - set(_names(original))
    for name in original.get("properties", {}):
        schema = update.get("properties", {}).get(name)
        if name in new and schema is not None and not _has_default(update.child(schema)):
            yield "REQUIRED_ATTRIBUTE_ADDED", ("required", name)


def _names(shape: Shape) -> list[str]:
    names = shape.get("required", [])
    return names if isinstance(names, list) else []


def _has_default(node: Node) -> bool:
    if not isinstance(node.raw, dict):
        return False
    return "default" in node.raw or any(_has_default(node.follow(reference)) for reference in node.references)


def _properties(original: Shape, update: Shape, compare: Compare) -> Iterator[Found]:
    before, after = original.get("properties", {}), update.get("properties", {})
    patterns = len(original.get("patternProperties", ())) + len(update.get("patternProperties", ()))
    if patterns * len({*before, *after}) > MAX_MATCHES:
        raise TooComplexError
    for name in dict.fromkeys((*before, *after)):
        if name not in after:
            found = _removed(original.child(before[name]), _beyond(update, name), compare)
        elif name not in before:
            found = _added(update, name, after[name], _beyond(original, name), compare)
        else:
            found = iter(compare(original.child(before[name]), update.child(after[name])))
        yield from below(("properties", name), list(found))


def _removed(original: Node, beyond: Model, compare: Compare) -> Iterator[Found]:
    """A property that the new object no longer lists. `beyond` is what it accepts in its place."""
    if isinstance(beyond, Node):
        found = compare(original, beyond)
        yield from found
        if found:
            yield "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", ()
    elif not beyond and shape_of(original).kind != FALSE:
        yield "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", ()


def _added(update: Shape, name: str, schema: Raw, beyond: Model, compare: Compare) -> Iterator[Found]:
    """A property that the new object lists first. `beyond` is what the original one accepts in its place."""
    added = update.child(schema)
    if beyond is True:
        if shape_of(added).kind != EMPTY:
            yield "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", ()
        return
    if isinstance(beyond, Node):
        found = compare(beyond, added)
        yield from found
        if found:
            yield "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", ()
    if name in _names(update) and not _has_default(added):
        yield "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", ()


def _beyond(shape: Shape, name: str) -> Model:
    """What an object accepts as a property that it does not list.

    With patterns, other names count as refused, as in the registry, even if nothing forbids them.
    """
    patterns: dict[str, Raw] = shape.get("patternProperties", {})
    for pattern, schema in patterns.items():
        if _matches(pattern, name):
            return shape.child(schema)
    others = model(shape, "additionalProperties", "unevaluatedProperties")
    return False if patterns and others is True else others


def _matches(pattern: str, name: str) -> bool:
    """Whether a property has a name that the pattern describes. A pattern that re2 does not know describes none."""
    compiled = _compile(pattern)
    return compiled is not None and compiled.search(name) is not None


@lru_cache(2000)
def _compile(pattern: str) -> Any:
    try:
        return re2.compile(pattern)
    except re2.error:
        return None


def _dependencies(original: Shape, update: Shape, compare: Compare) -> Iterator[Found]:
    before, after = _dependent_names(original), _dependent_names(update)
    for name, needed in after.items():
        path = ("dependencies", name)
        if name not in before:
            yield "DEPENDENCY_ARRAY_ADDED", path
        elif not needed <= before[name]:
            yield f"DEPENDENCY_ARRAY_{'EXTENDED' if before[name] <= needed else 'CHANGED'}", path
    schemas = _dependent_schemas(original)
    for name, schema in _dependent_schemas(update).items():
        path = ("dependencies", name)
        if name not in schemas:
            yield "DEPENDENCY_SCHEMA_ADDED", path
        else:
            yield from below(path, compare(original.child(schemas[name]), update.child(schema)))


def _dependent_names(shape: Shape) -> dict[str, set[str]]:
    listed = {**shape.get("dependencies", {}), **shape.get("dependentRequired", {})}
    return {name: set(needed) for name, needed in listed.items() if isinstance(needed, list)}


def _dependent_schemas(shape: Shape) -> dict[str, Raw]:
    listed = {**shape.get("dependencies", {}), **shape.get("dependentSchemas", {})}
    return {name: schema for name, schema in listed.items() if isinstance(schema, dict | bool)}
