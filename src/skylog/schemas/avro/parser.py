"""From JSON to the types of Avro.

A name must be defined before it is used, in depth-first order, as in Avro's own parsers; a record may use itself.
Messages give the place as a JSON pointer into the schema's text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from skylog.schemas.avro.defaults import default_problem
from skylog.schemas.avro.types import (
    NO_DEFAULT,
    PRIMITIVES,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Name,
    Named,
    Primitive,
    Record,
    Union,
)
from skylog.schemas.json_text import load_json
from skylog.schemas.schema import InvalidSchema

_PART: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAMED: Final = ("record", "error", "enum", "fixed")
_ORDERS: Final = ("ascending", "descending", "ignore")
_OF_TYPES: Final = frozenset(
    ("doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases")
)
_OF_FIELDS: Final = frozenset(("default", "doc", "name", "order", "type", "aliases"))


class Parser:
    """Parses the schemas that are referred to, then the schema itself, with one set of names."""

    def __init__(self, references: Mapping[str, str]) -> None:
        self._named: dict[Name, Named] = {}
        self._waiting = dict(references)
        self._origin = ""

    def parse_references(self) -> frozenset[Name]:
        """Parse all references and return the names that they define."""
        while self._waiting:
            self._parse_reference(next(iter(self._waiting)))
        return frozenset(self._named)

    def parse(self, text: str) -> AvroType:
        return self._type(load_json(text, self._origin), "", "")

    def _parse_reference(self, name: str) -> None:
        text, outer = self._waiting.pop(name), self._origin
        self._origin = f"in the reference {name}: "
        self.parse(text)
        self._origin = outer

    def _invalid(self, path: str, reason: str) -> InvalidSchema:
        return InvalidSchema(f"{self._origin}at {path or '/'}: {reason}")

    def _type(self, node: Any, namespace: str, path: str) -> AvroType:
        match node:
            case str():
                return Primitive(node, {}) if node in PRIMITIVES else self._defined(node, namespace, path)
            case list():
                return self._union(node, namespace, path)
            case {"type": str(kind)}:
                return self._typed(kind, node, namespace, path)
            case {"type": _}:
                raise self._invalid(path, "the type of a type must be a name; remove the outer object")
            case dict():
                raise self._invalid(path, 'no "type"')
            case _:
                raise self._invalid(path, f"{json.dumps(node)} is not a type; a type is a name, an object or a list")

    def _typed(self, kind: str, node: dict[str, Any], namespace: str, path: str) -> AvroType:
        if kind in PRIMITIVES:
            return Primitive(kind, _props(node))
        if kind == "array":
            return Array(self._part(node, "items", namespace, path), _props(node))
        if kind == "map":
            return Map(self._part(node, "values", namespace, path), _props(node))
        if kind in _NAMED:
            return self._named_type(kind, node, namespace, path)
        return self._defined(kind, namespace, path)

    def _part(self, node: dict[str, Any], key: str, namespace: str, path: str) -> AvroType:
        if key not in node:
            raise self._invalid(path, f'the {node["type"]} has no "{key}"')
        return self._type(node[key], namespace, f"{path}/{key}")

    def _union(self, nodes: list[Any], namespace: str, path: str) -> Union:
        branches = tuple(self._type(node, namespace, f"{path}/{index}") for index, node in enumerate(nodes))
        seen = set()
        for index, branch in enumerate(branches):
            if isinstance(branch, Union):
                raise self._invalid(f"{path}/{index}", "a union directly within a union")
            key = branch.name.full if isinstance(branch, Record | Enum | Fixed) else branch.kind
            if key in seen:
                raise self._invalid(f"{path}/{index}", f"the union has {key} twice")
            seen.add(key)
        return Union(branches)

    def _defined(self, name: str, namespace: str, path: str) -> AvroType:
        full = _qualified(name, namespace)
        if full not in self._named and full.full in self._waiting:
            self._parse_reference(full.full)
        # A name without a namespace may also be one that is defined without, as Avro's parsers allow.
        found = self._named.get(full) or self._named.get(_qualified(name, ""))
        if found is None:
            known = ", ".join(sorted(known.full for known in self._named)[:20])
            raise self._invalid(
                path, f"the type {full.full} is not defined" + (f"; defined are {known}" if known else "")
            )
        return found

    def _named_type(self, kind: str, node: dict[str, Any], namespace: str, path: str) -> Named:
        name = self._name(node, namespace, path)
        if name in self._named:
            raise self._invalid(path, f"{name.full} is defined twice")
        aliases = tuple(_qualified(alias, name.namespace) for alias in self._aliases(node, path))
        doc = _text_or_none(node.get("doc"))
        if kind == "enum":
            symbols = self._symbols(node, path)
            default = self._enum_default(node, symbols, path)
            self._named[name] = Enum(name, aliases, doc, _props(node, "default"), symbols, default)
        elif kind == "fixed":
            self._named[name] = Fixed(name, aliases, doc, _props(node), self._size(node, path))
        else:
            record = self._named[name] = Record(name, aliases, doc, _props(node), kind == "error")
            record.fields.extend(self._fields(node, name.namespace, path))
        return self._named[name]

    def _name(self, node: dict[str, Any], namespace: str, path: str) -> Name:
        given = node.get("name")
        if not isinstance(given, str) or not given:
            raise self._invalid(path, f'the {node["type"]} has no "name"')
        own = node.get("namespace", namespace)
        if not isinstance(own, str):
            raise self._invalid(f"{path}/namespace", "the namespace is not a text")
        name = _qualified(given, own)
        parts = [*name.namespace.split("."), name.name] if name.namespace else [name.name]
        for part in parts:
            if not _PART.fullmatch(part):
                raise self._invalid(
                    path, f"{name.full!r} is not a name: letters, digits and _ only, and no digit first"
                )
        if not name.namespace and name.name in PRIMITIVES:
            raise self._invalid(path, f"{name.name} is the name of a primitive type")
        return name

    def _aliases(self, node: dict[str, Any], path: str) -> list[str]:
        aliases = node.get("aliases", [])
        if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
            raise self._invalid(f"{path}/aliases", "the aliases are not a list of names")
        return list(dict.fromkeys(aliases))

    def _symbols(self, node: dict[str, Any], path: str) -> tuple[str, ...]:
        symbols = node.get("symbols")
        if not isinstance(symbols, list):
            raise self._invalid(path, 'the enum has no list of "symbols"')
        for index, symbol in enumerate(symbols):
            if not isinstance(symbol, str) or not _PART.fullmatch(symbol):
                raise self._invalid(
                    f"{path}/symbols/{index}", f"{json.dumps(symbol)} is not a symbol: letters, digits, _ only"
                )
        self._distinct(symbols, "symbol", f"{path}/symbols")
        return tuple(symbols)

    def _enum_default(self, node: dict[str, Any], symbols: tuple[str, ...], path: str) -> str | None:
        default = node.get("default")
        if default is not None and default not in symbols:
            raise self._invalid(f"{path}/default", f"the default {json.dumps(default)} is not among the symbols")
        return default

    def _size(self, node: dict[str, Any], path: str) -> int:
        size = node.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise self._invalid(path, 'the fixed has no "size", or one that is not a number of bytes')
        return size

    def _fields(self, node: dict[str, Any], namespace: str, path: str) -> Iterable[Field]:
        nodes = node.get("fields")
        if not isinstance(nodes, list):
            raise self._invalid(path, 'the record has no list of "fields"')
        fields = [self._field(item, namespace, f"{path}/fields/{index}") for index, item in enumerate(nodes)]
        self._distinct([item.name for item in fields], "field", f"{path}/fields")
        return fields

    def _field(self, node: Any, namespace: str, path: str) -> Field:
        if not isinstance(node, dict):
            raise self._invalid(path, "a field is an object")
        name = node.get("name")
        if not isinstance(name, str) or not _PART.fullmatch(name):
            raise self._invalid(path, f"{json.dumps(name)} is not the name of a field: letters, digits and _ only")
        if "type" not in node:
            raise self._invalid(path, f'the field {name} has no "type"')
        order = node.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in _ORDERS:
            raise self._invalid(f"{path}/order", f"the order is one of {', '.join(_ORDERS)}")
        kind = self._type(node["type"], namespace, f"{path}/type")
        default = node.get("default", NO_DEFAULT)
        if default is not NO_DEFAULT and (problem := default_problem(kind, default)):
            raise self._invalid(f"{path}/default", f"the default of the field {name} does not fit its type: {problem}")
        props = {key: value for key, value in node.items() if key not in _OF_FIELDS}
        aliases = tuple(self._aliases(node, path))
        return Field(name, kind, _text_or_none(node.get("doc")), default, order.lower(), aliases, props)

    def _distinct(self, names: list[str], what: str, path: str) -> None:
        seen = set()
        for index, name in enumerate(names):
            if name in seen:
                raise self._invalid(f"{path}/{index}", f"the {what} {name} is there twice")
            seen.add(name)


def _qualified(name: str, namespace: str) -> Name:
    before, dot, last = name.rpartition(".")
    return Name(before if dot else namespace, last)


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _props(node: dict[str, Any], *known: str) -> dict[str, Any]:
    return {key: value for key, value in node.items() if key not in _OF_TYPES and key not in known}
