"""Verdicts against data: fastavro writes with one schema and reads with another.

If there is no incompatibility, all data must be readable; if there is one, some of the data that a schema can have must
not be. The pairs are a random schema and a random change of it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skylog.schemas import SchemaType, parse
from skylog.schemas.compatibility import differences
from tests.proof import proof

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
SAMPLES: dict[str, Any] = {
    "null": None,
    "boolean": True,
    "int": 7,
    "long": 1 << 40,
    "float": 0.5,
    "double": 0.25,
    "bytes": b"bytes",
    "string": "text",
}
DEFAULTS: dict[str, Any] = {**SAMPLES, "bytes": "bytes"}


class Names:
    """New names, so that each definition is unique within a schema."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"


@st.composite
def schemas(draw: st.DrawFn) -> Any:
    return draw_type(draw, Names(), 3)


def draw_type(draw: st.DrawFn, new_name: Names, depth: int, *, in_union: bool = False) -> Any:
    kinds = ["primitive", "enum", "fixed"]
    if depth:
        kinds += ["array", "map", "record", "record"] + ([] if in_union else ["union", "union"])
    match draw(st.sampled_from(kinds)):
        case "enum":
            symbols = draw(st.lists(st.sampled_from("ABCD"), min_size=1, max_size=3, unique=True))
            return {"type": "enum", "name": new_name("E"), "symbols": symbols}
        case "fixed":
            return {"type": "fixed", "name": new_name("F"), "size": draw(st.integers(1, 3))}
        case "array":
            return {"type": "array", "items": draw_type(draw, new_name, depth - 1)}
        case "map":
            return {"type": "map", "values": draw_type(draw, new_name, depth - 1)}
        case "record":
            name = new_name("R")
            count = draw(st.integers(0, 3))
            return {
                "type": "record",
                "name": name,
                "fields": [{"name": f"f{at}", "type": draw_type(draw, new_name, depth - 1)} for at in range(count)],
            }
        case "union":
            branches = [draw_type(draw, new_name, depth - 1, in_union=True) for _ in range(draw(st.integers(1, 3)))]
            return list({_branch_key(branch): branch for branch in branches}.values())
    return draw(st.sampled_from(PRIMITIVES))


def _branch_key(branch: Any) -> str:
    if isinstance(branch, dict):
        return str(branch.get("name", branch["type"]))
    return str(branch)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Any, Any]:
    """A schema, and the same with a few changes."""
    writer = draw(schemas())
    reader = json.loads(json.dumps(writer))
    new_name = Names()
    new_name.count = 1000
    for _ in range(draw(st.integers(0, 3))):
        reader = change(draw, reader, new_name)
    return writer, reader


def change(draw: st.DrawFn, kind: Any, new_name: Names) -> Any:
    """Change a type at a random place within it."""
    if isinstance(kind, str):
        return draw(st.sampled_from(PRIMITIVES))
    if isinstance(kind, list):
        return _changed_union(draw, kind, new_name)
    match kind["type"]:
        case "array":
            return {**kind, "items": change(draw, kind["items"], new_name)}
        case "map":
            return {**kind, "values": change(draw, kind["values"], new_name)}
        case "record":
            return _changed_record(draw, kind, new_name)
        case "enum":
            symbols = draw(st.lists(st.sampled_from("ABCD"), min_size=1, max_size=4, unique=True))
            more = {"default": symbols[0]} if draw(st.booleans()) else {}
            return _renamed(draw, {"type": "enum", "name": kind["name"], "symbols": symbols, **more}, new_name)
    return _renamed(draw, {**kind, "size": draw(st.sampled_from([kind["size"], 4]))}, new_name)


def _renamed(draw: st.DrawFn, kind: Any, new_name: Names) -> Any:
    match draw(st.sampled_from(["same", "same", "renamed", "alias"])):
        case "renamed":
            return {**kind, "name": new_name("N")}
        case "alias":
            return {**kind, "name": new_name("N"), "aliases": [*kind.get("aliases", []), kind["name"]]}
    return kind


def _changed_union(draw: st.DrawFn, branches: list[Any], new_name: Names) -> list[Any]:
    at = draw(st.integers(0, len(branches) - 1))
    match draw(st.sampled_from(["change", "add", "remove", "turn"])):
        case "change":
            changed = change(draw, branches[at], new_name)
            result = [*branches[:at], changed, *branches[at + 1 :]]
        case "add":
            result = [*branches, draw(st.sampled_from(PRIMITIVES))]
        case "remove":
            result = [*branches[:at], *branches[at + 1 :]] or ["null"]
        case _:
            result = branches[::-1]
    return list({_branch_key(branch): branch for branch in result}.values())


def _changed_record(draw: st.DrawFn, kind: Any, new_name: Names) -> Any:
    fields = list(kind["fields"])
    action = draw(st.sampled_from(["add", "remove", "change", "alias", "rename"]))
    if action == "rename" or (action != "add" and not fields):
        return _renamed(draw, kind, new_name)
    at = draw(st.integers(0, max(len(fields) - 1, 0)))
    match action:
        case "add":
            name = draw(st.sampled_from(PRIMITIVES))
            more = {"default": DEFAULTS[name]} if draw(st.booleans()) else {}
            fields.insert(at, {"name": new_name("g"), "type": name, **more})
        case "remove":
            del fields[at]
        case "change":
            fields[at] = {**fields[at], "type": change(draw, fields[at]["type"], new_name)}
            fields[at].pop("default", None)
        case _:
            fields[at] = {**fields[at], "name": new_name("g"), "aliases": [fields[at]["name"]]}
    return {**kind, "fields": fields}


def covering(kind: Any) -> Iterator[Any]:
    """Data that together use every branch and symbol of a schema."""
    if isinstance(kind, str):
        yield SAMPLES[kind]
    elif isinstance(kind, list):
        for branch in kind:
            for datum in covering(branch):
                yield (_branch_key(branch), datum)
    elif kind["type"] == "array":
        yield from ([datum] for datum in covering(kind["items"]))
    elif kind["type"] == "map":
        yield from ({"k": datum} for datum in covering(kind["values"]))
    elif kind["type"] == "enum":
        yield from kind["symbols"]
    elif kind["type"] == "fixed":
        yield b"x" * kind["size"]
    else:
        yield from _covering_records(kind["fields"])


def _covering_records(fields: list[Any]) -> Iterator[dict[str, Any]]:
    choices = {field["name"]: list(covering(field["type"])) for field in fields}
    for at in range(max((len(data) for data in choices.values()), default=1)):
        yield {name: data[min(at, len(data) - 1)] for name, data in choices.items()}


def is_readable(writer: Any, reader: Any, datum: Any) -> bool:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(writer), datum)
    stream.seek(0)
    try:
        fastavro.schemaless_reader(stream, fastavro.parse_schema(writer), fastavro.parse_schema(reader))
    except (fastavro.read.SchemaResolutionError, ValueError, IndexError, KeyError, TypeError):
        return False
    return True


@settings(max_examples=proof(5000, 150), deadline=None)
@given(pairs())
@example(([], "int"))
def test_the_verdict_is_what_fastavro_can_read(pair: tuple[Any, Any]) -> None:
    writer, reader = pair
    found = differences(parse(SchemaType.AVRO, json.dumps(reader)), parse(SchemaType.AVRO, json.dumps(writer)))
    data = list(covering(writer))
    assert all(is_readable(writer, reader, datum) for datum in data) == (not found)
