"""The two texts of an Avro schema that are compared.

The canonical text has no white space, Avro's order of attributes, and each type in its shortest form; docs, aliases,
defaults and unknown attributes stay. The normalized text also has full names in place of namespaces, and sorted
aliases and unknown attributes. A type of a reference is written as its name.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any

from skylog.schemas.avro.types import Array, AvroType, Enum, Field, Fixed, Map, Name, Named, Primitive, Union
from skylog.schemas.json_text import compact_json


def canonical_text(kind: AvroType, referred: AbstractSet[Name]) -> str:
    return compact_json(_Canonical(referred).of(kind, ""))


def normalized_text(kind: AvroType, referred: AbstractSet[Name]) -> str:
    return compact_json(_Normalized(referred).of(kind, ""))


class _Canonical:
    """Makes the JSON of a type. A name is defined where it is first met, and a name afterwards."""

    def __init__(self, referred: AbstractSet[Name]) -> None:
        self._defined = set(referred)

    def of(self, kind: AvroType, namespace: str) -> Any:
        match kind:
            case Primitive():
                return {"type": kind.kind, **self.props(kind.props)} if kind.props else kind.kind
            case Array():
                return {"type": "array", "items": self.of(kind.items, namespace), **self.props(kind.props)}
            case Map():
                return {"type": "map", "values": self.of(kind.values, namespace), **self.props(kind.props)}
            case Union():
                return [self.of(branch, namespace) for branch in kind.branches]
        if kind.name in self._defined:
            return self.name(kind.name, namespace)
        self._defined.add(kind.name)
        return self._definition(kind, namespace)

    def _definition(self, kind: Named, namespace: str) -> dict[str, Any]:
        word = "error" if kind.kind == "record" and kind.is_error else kind.kind  # type: ignore[union-attr]
        node: dict[str, Any] = {"type": word, **self.names(kind.name, namespace)}
        if kind.doc is not None:
            node["doc"] = kind.doc
        inner = self.inner(kind.name)
        if isinstance(kind, Enum):
            node["symbols"] = kind.symbols
            if kind.default is not None:
                node["default"] = kind.default
        elif isinstance(kind, Fixed):
            node["size"] = kind.size
        else:
            node["fields"] = [self._field(field, inner) for field in kind.fields]
        node |= self.props(kind.props)
        if kind.aliases:
            node["aliases"] = self.aliases([self.name(alias, inner) for alias in kind.aliases])
        return node

    def _field(self, field: Field, namespace: str) -> dict[str, Any]:
        node: dict[str, Any] = {"name": field.name, "type": self.of(field.type, namespace)}
        if field.doc is not None:
            node["doc"] = field.doc
        if field.has_default:
            node["default"] = field.default
        if field.order != "ascending":
            node["order"] = field.order
        if field.aliases:
            node["aliases"] = self.aliases(list(field.aliases))
        return node | self.props(field.props)

    def inner(self, name: Name) -> str:
        """The namespace of what stands within a type of this name."""
        return name.namespace

    def names(self, name: Name, namespace: str) -> dict[str, str]:
        own = {"name": name.name}
        return own if name.namespace == namespace else own | {"namespace": name.namespace}

    def name(self, name: Name, namespace: str) -> str:
        return name.name if name.namespace == namespace else name.full

    def props(self, props: Any) -> dict[str, Any]:
        return dict(props)

    def aliases(self, aliases: list[str]) -> list[str]:
        return aliases


class _Normalized(_Canonical):
    def inner(self, name: Name) -> str:
        return ""

    def names(self, name: Name, namespace: str) -> dict[str, str]:
        return {"name": name.full}

    def name(self, name: Name, namespace: str) -> str:
        return name.full

    def props(self, props: Any) -> dict[str, Any]:
        return {key: _sorted(props[key]) for key in sorted(props)}

    def aliases(self, aliases: list[str]) -> list[str]:
        return sorted(aliases)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value
