"""Makes a `Schema` of the text of a JSON Schema, and checks it against its draft and its references."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from jsonschema import (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
)
from jsonschema.exceptions import best_match

from skylog.schemas.json_schema.nodes import Node, Raw, draft_of, root_node
from skylog.schemas.json_schema.shapes import shape_of
from skylog.schemas.json_text import compact_json, load_json, pointer
from skylog.schemas.schema import InvalidSchema, Schema, SchemaType

_VALIDATORS: Final[Mapping[int, Any]] = {
    4: Draft4Validator,
    6: Draft6Validator,
    7: Draft7Validator,
    2019: Draft201909Validator,
    2020: Draft202012Validator,
}
MAX_OBJECTS: Final = 50_000
MAX_PATTERNS: Final = 1000
_ONE: Final = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_MANY: Final = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
_NAMED: Final = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")


def parse_json(text: str, references: Mapping[str, str]) -> Schema:
    """Parse a JSON Schema. The name of a reference is the address by which $ref uses it."""
    raw = load_json(text)
    others = {name: load_json(other, f"in the reference {name}: ") for name, other in references.items()}
    _check_size([raw, *others.values()])
    _check(raw, "")
    for name, other in others.items():
        _check(other, f"in the reference {name}: ")
    root = root_node(raw, others)
    for path, node in _nodes(root, ()):
        _check_references(path, node, "")
    for name in others:
        for path, node in _nodes(root.follow(name), ()):
            _check_references(path, node, f"in the reference {name}: ")
    title = raw.get("title") if isinstance(raw, dict) else None
    return Schema(
        kind=SchemaType.JSON,
        text=text,
        canonical=compact_json(raw),
        normalized=compact_json(raw, sort_keys=True),
        name=title if isinstance(title, str) else None,
        parsed=root,
    )


def _check_size(raws: list[Raw]) -> None:
    """Refuse what would take long to check: each object costs about 30 µs, and each pattern about 1 ms."""
    objects, patterns, waiting = 0, 0, raws
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            objects += 1
            by_pattern = each.get("patternProperties")
            patterns += len(by_pattern) if isinstance(by_pattern, dict) else 0
        waiting += each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
    if objects > MAX_OBJECTS:
        raise InvalidSchema(f"the schema has {objects} objects, with its references; {MAX_OBJECTS} are allowed")
    if patterns > MAX_PATTERNS:
        raise InvalidSchema(f"the schema has {patterns} patterns of properties; {MAX_PATTERNS} are allowed")


def _check(raw: Raw, origin: str) -> None:
    draft, _ = draft_of(raw)
    if not isinstance(raw, dict | bool):
        raise InvalidSchema(f"{origin}at /: a JSON Schema is an object, true or false")
    validator = _VALIDATORS[draft]
    error = best_match(validator(validator.META_SCHEMA).iter_errors(raw))
    if error is not None:
        path = pointer(tuple(str(part) for part in error.absolute_path))
        raise InvalidSchema(f"{origin}at {path}: {error.message}")


def _nodes(node: Node, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Node]]:
    """This schema and all within it."""
    yield path, node
    if not isinstance(node.raw, dict) or (node.draft <= 7 and node.references):
        return
    for key, value in _within(node.raw):
        yield from _nodes(node.child(value), (*path, *key))


def _within(raw: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], Raw]]:
    for word in _ONE:
        if isinstance(raw.get(word), dict | bool):
            yield (word,), raw[word]
    for word in _MANY:
        if isinstance(raw.get(word), list):
            yield from (((word, str(index)), each) for index, each in enumerate(raw[word]))
    for word in _NAMED:
        if isinstance(raw.get(word), dict):
            yield from (((word, name), each) for name, each in raw[word].items() if isinstance(each, dict | bool))


def _check_references(path: tuple[str, ...], node: Node, origin: str) -> None:
    """Every reference leads somewhere, and not around in a circle."""
    try:
        shape_of(node)
    except LookupError as error:
        raise InvalidSchema(
            f"{origin}at {pointer(path)}: the reference {error.args[0]} leads nowhere; add what it means to the "
            "schema, or a reference to another schema with this name"
        ) from None
    except RecursionError:
        if not node.references:
            raise
        reference = node.references[0]
        raise InvalidSchema(f"{origin}at {pointer(path)}: the reference {reference} leads back to itself") from None
