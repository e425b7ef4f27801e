"""What a JSON Schema demands, as one of a few shapes.

A schema that combines several demands (an enum beside a type, keywords of two types) is the shape allOf of them, and a
list of types is anyOf. The registry's rules of compatibility are defined on these shapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from skylog.schemas.json_schema.nodes import Node, Raw

EMPTY: Final = "empty"
"""Accepts everything."""
FALSE: Final = "false"
"""Accepts nothing."""
COMBINED: Final = ("allOf", "anyOf", "oneOf")

Found = tuple[str, tuple[str, ...]]
"""The name of a difference, and its path from the schemas that are compared."""

_KEYWORDS: Final = {
    "array": (
        "items", "additionalItems", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains", "minContains",
        "maxContains", "unevaluatedItems",
    ),
    "object": (
        "properties", "required", "minProperties", "maxProperties", "dependencies", "dependentRequired",
        "dependentSchemas", "patternProperties", "additionalProperties", "propertyNames", "unevaluatedProperties",
    ),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "string": ("minLength", "maxLength", "pattern", "format"),
}  # fmt: skip
"""The keywords that say what a schema without a type is about."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """One demand of a schema."""

    kind: str
    """EMPTY, FALSE, enum, const, not, if, one of COMBINED, or a type. The type integer is a number."""
    node: Node
    word: str = ""
    """The keyword that demands it, to tell several demands of one schema apart."""
    members: tuple[Node | Shape, ...] = ()
    is_integer: bool = False

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for the same demand of the same schema."""
        whole = self.node.raw if isinstance(self.node.raw, bool) else id(self.node.raw)
        return whole, self.kind, self.word, self.is_integer

    def get(self, word: str, default: Any = None) -> Any:
        """The value of a keyword."""
        return self.node.raw.get(word, default)

    def child(self, raw: Raw) -> Node:
        return self.node.child(raw)


def shape_of(place: Node | Shape) -> Shape:
    """The shape of a node, with references followed."""
    if isinstance(place, Shape):
        return place
    if place.raw is True or place.raw is False:
        return Shape(EMPTY if place.raw else FALSE, place)
    referred = [place.follow(reference) for reference in place.references]
    if place.draft <= 7 and referred:
        return shape_of(referred[0])
    demands: list[Node | Shape] = [*referred, *_demands(place)]
    if not demands:
        return Shape(EMPTY, place)
    if len(demands) == 1:
        return shape_of(demands[0])
    return Shape("allOf", place, "", tuple(demands))


def _demands(node: Node) -> list[Shape]:
    raw = node.raw
    found = [
        Shape(word, node, word, tuple(node.child(each) for each in raw[word]))
        for word in COMBINED
        if isinstance(raw.get(word), list)
    ]
    if "enum" in raw:
        found.append(Shape("enum", node))
    if "const" in raw and node.draft >= 6:
        found.append(Shape("const", node))
    if "not" in raw:
        found.append(Shape("not", node))
    if "if" in raw and node.draft >= 7:
        found.append(Shape("if", node))
    return found + _types(node)


def _types(node: Node) -> list[Shape]:
    match node.raw.get("type"):
        case str(name):
            return [_typed(name, node)]
        case list(names):
            return [Shape("anyOf", node, "type", tuple(_typed(name, node) for name in names))]
        case _:
            return [Shape(kind, node) for kind, words in _KEYWORDS.items() if any(word in node.raw for word in words)]


def _typed(name: str, node: Node) -> Shape:
    return Shape("number", node, is_integer=True) if name == "integer" else Shape(name, node)
