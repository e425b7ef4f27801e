"""Schemas that are made to take long, or to fail in an unusual way. All of them are answered within seconds."""

from __future__ import annotations

import json
from time import thread_time
from typing import Any

import pytest

from skylog.schemas import InvalidSchema, SchemaType, parse
from skylog.schemas.compatibility import incompatibilities
from skylog.schemas.pairs import MAX_FOUND, Pairs

SECONDS = 10.0
TOO_COMPLEX = "too complex to be compared"


def compare(kind: SchemaType, new: Any, old: Any, seconds: float = SECONDS) -> list[str]:
    """The problems of two schemas. The time is that of this thread, so other processes do not count."""
    reader, writer = parse(kind, json.dumps(new)), parse(kind, json.dumps(old))
    began = thread_time()
    found = incompatibilities(reader, writer)
    assert thread_time() - began < seconds
    return found


def doubled(depth: int, last: str) -> dict[str, Any]:
    """Each definition uses the next one twice, so there are 2 ** depth paths to the last one."""
    uses = {f"d{i}": {f: {"$ref": f"#/definitions/d{i + 1}"} for f in "ab"} for i in range(depth)}
    definitions = {name: {"type": "object", "properties": each} for name, each in uses.items()}
    return {"$ref": "#/definitions/d0", "definitions": {**definitions, f"d{depth}": {"type": last}}}


def test_paths_that_double_at_every_level_give_a_bounded_list_of_differences() -> None:
    assert len(compare(SchemaType.JSON, doubled(40, "string"), doubled(40, "integer"))) == MAX_FOUND
    assert compare(SchemaType.JSON, doubled(40, "string"), doubled(40, "string")) == []


def circle(size: int, kind: str) -> dict[str, Any]:
    """Definitions that all refer to each other through anyOf. Only one differs by kind."""
    definitions = {}
    for i in range(size):
        own = {f"k{i}": {"type": kind if i == 0 else "string"}}
        used = [{"a": {"$ref": f"#/definitions/d{j}"}, **own} for j in range(size)]
        closed = {"type": "object", "required": [*own], "additionalProperties": False}
        definitions[f"d{i}"] = {"anyOf": [{**closed, "properties": each} for each in used]}
    return {"$ref": "#/definitions/d0", "definitions": definitions}


@pytest.mark.parametrize("size", [4, 8])
def test_definitions_that_refer_to_each_other_are_compared_in_bounded_time(size: int) -> None:
    assert compare(SchemaType.JSON, circle(size, "string"), circle(size, "integer"), 3.0)


def test_a_large_union_is_refused_before_it_takes_long() -> None:
    records = [{"type": "record", "name": f"R{i}", "fields": []} for i in range(3000)]
    [found] = compare(SchemaType.AVRO, records, records)
    assert TOO_COMPLEX in found
    objects = [{"type": "object", "properties": {f"p{i}": {}}} for i in range(300)]
    [found] = compare(SchemaType.JSON, {"anyOf": objects}, {"anyOf": objects})
    assert TOO_COMPLEX in found


def test_alternatives_that_all_fit_each_other_are_matched_fast() -> None:
    objects = [{"type": "object", "properties": {f"p{i}": {}}} for i in range(150)]
    assert compare(SchemaType.JSON, {"anyOf": objects}, {"anyOf": objects}) == []


def test_many_patterns_and_names_are_refused_before_they_take_long() -> None:
    patterns: dict[str, Any] = {"patternProperties": {f"^x{i}$": {} for i in range(1000)}}
    names: dict[str, Any] = {"properties": {f"p{i}": {} for i in range(1000)}}
    [found] = compare(SchemaType.JSON, {"type": "object", **patterns}, {"type": "object", **names})
    assert TOO_COMPLEX in found


def test_large_enums_are_compared_in_linear_time() -> None:
    old, new = {"enum": [*range(30_000)]}, {"enum": [*range(1, 30_001)]}
    assert len(compare(SchemaType.JSON, new, old)) == 1
    assert compare(SchemaType.JSON, {"enum": [1, [True], {"a": 1}, 0]}, {"enum": [{"a": 1.0}, 1.0, [True]]}) == []
    assert compare(SchemaType.JSON, {"enum": [1, [1]]}, {"enum": [True]})


def test_multiples_of_any_size_are_compared() -> None:
    tiny, huge = {"type": "number", "multipleOf": 1e-320}, {"type": "number", "multipleOf": 1e308}
    assert compare(SchemaType.JSON, tiny, huge) == []
    assert compare(SchemaType.JSON, huge, tiny)


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (SchemaType.JSON, '{"minimum": ' + "9" * 5000 + "}", "5000 digits"),
        (SchemaType.JSON, '{"minimum": 1e999}', "too large a number"),
        (SchemaType.JSON, r'{"title": "\ud800"}', "surrogate"),
        (SchemaType.AVRO, r'{"type": "enum", "name": "E", "symbols": ["A"], "doc": "\uDC00"}', "surrogate"),
        (SchemaType.JSON, json.dumps({"anyOf": [{}] * 50_001}), "50000 are allowed"),
        (SchemaType.JSON, json.dumps({"patternProperties": {f"{i}": {} for i in range(1001)}}), "1000 are allowed"),
        (SchemaType.JSON, '{"items":' * 10_000 + "{}" + "}" * 10_000, "nested too deeply"),
        (SchemaType.AVRO, '{"type":"array","items":' * 10_000 + '"int"' + "}" * 10_000, "nested too deeply"),
    ],
)
def test_what_cannot_be_parsed_is_an_invalid_schema(kind: SchemaType, text: str, reason: str) -> None:
    with pytest.raises(InvalidSchema, match=reason):
        parse(kind, text)


def test_a_surrogate_pair_is_one_character() -> None:
    assert parse(SchemaType.JSON, r'{"title": "\ud83d\ude00"}').name == "\N{GRINNING FACE}"


def test_a_verdict_after_many_comparisons_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without forgetting, W counts as compatible in the first round, since R does; the second round knows better.
    graph = {"top": ["either"], "either": ["R", "W"], "R": ["W", "bad"], "W": ["R"], "bad": []}

    def verdict(forgetful: int) -> bool:
        monkeypatch.setattr("skylog.schemas.pairs.MAX_FORGETFUL", forgetful)
        pairs = Pairs[str, str]()

        def look(name: str) -> list[str]:
            return pairs.compare(name, lambda: find(name))

        def find(name: str) -> list[str]:
            if name == "bad":
                return ["bad"]
            found = [look(each) for each in graph[name]]
            if name == "either":
                return [] if any(not each for each in found) else ["neither"]
            return [each for several in found for each in several]

        return not look("top")

    assert verdict(10_000) is False
    assert verdict(0) is False
