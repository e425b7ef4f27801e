"""Whether what one JSON Schema accepts is also accepted by another, by the registry's rules.

`original` is the writer's schema, `update` the reader's. Only differences that refuse data are recorded: what makes
the reader accept more is compatible.
"""

from __future__ import annotations

from typing import Any

from skylog.schemas.difference import Difference
from skylog.schemas.json_schema.arrays import array_differences
from skylog.schemas.json_schema.combinations import combined_differences, singled_out
from skylog.schemas.json_schema.limits import (
    const_differences,
    enum_differences,
    limit_differences,
    number_differences,
    string_differences,
)
from skylog.schemas.json_schema.nodes import Node
from skylog.schemas.json_schema.objects import object_differences
from skylog.schemas.json_schema.sentences import difference
from skylog.schemas.json_schema.shapes import COMBINED, EMPTY, FALSE, Found, Shape, shape_of
from skylog.schemas.pairs import Pairs
from skylog.schemas.schema import Schema


def json_differences(reader: Schema, writer: Schema) -> list[Difference]:
    """Why data of `writer` cannot be read with `reader`."""
    assert isinstance(reader.parsed, Node)
    assert isinstance(writer.parsed, Node)
    return [difference(kind, path) for kind, path in _Comparison().compare(writer.parsed, reader.parsed)]


class _Comparison:
    def __init__(self) -> None:
        self._pairs = Pairs[tuple[Any, Any], Found]()

    def compare(self, original: Node | Shape, update: Node | Shape) -> list[Found]:
        before, after = shape_of(original), shape_of(update)
        return self._pairs.compare((before.key, after.key), lambda: self._shapes(before, after))

    def _shapes(self, original: Shape, update: Shape) -> list[Found]:
        if update.kind == EMPTY or original.kind == FALSE:
            return []
        if singled_out(original, update, self.compare):
            return []
        if original.kind in COMBINED and update.kind in COMBINED:
            return combined_differences(original, update, self.compare)
        if original.kind != update.kind:
            return [("TYPE_CHANGED", ())]
        return [*self._of_kind(original, update), *limit_differences(original, update)]

    def _of_kind(self, original: Shape, update: Shape) -> list[Found]:
        match update.kind:
            case "object":
                return list(object_differences(original, update, self.compare))
            case "array":
                return list(array_differences(original, update, self.compare))
            case "string":
                return list(string_differences(original, update))
            case "number":
                return list(number_differences(original, update))
            case "enum":
                return list(enum_differences(original, update))
            case "const":
                return list(const_differences(original, update))
            case "not":
                # What must not match may only become less.
                reverse = self.compare(update.child(update.get("not")), original.child(original.get("not")))
                return [("NOT_TYPE_EXTENDED", ("not",))] if reverse else []
        return []
