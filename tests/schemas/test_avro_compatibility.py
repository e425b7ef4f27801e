"""Verdicts of Avro's schema resolution for pairs of schemas, each pair in both directions.

A row has an old schema, a new one, why the new one cannot read old data, and why the old one cannot read new data.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from skylog.schemas import Schema, SchemaType, parse
from skylog.schemas.compatibility import differences, incompatibilities

Kinds = tuple[str, ...]
Row = tuple[Any, Any, Kinds, Kinds]
DEFAULT = ("READER_FIELD_MISSING_DEFAULT_VALUE",)
NAME = ("NAME_MISMATCH",)
TYPE = ("TYPE_MISMATCH",)
BRANCH = ("MISSING_UNION_BRANCH",)
SYMBOLS = ("MISSING_ENUM_SYMBOLS",)
SIZE = ("FIXED_SIZE_MISMATCH",)


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any = "int", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, name: str = "E", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F", **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def mapping(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


def tree(value: Any) -> dict[str, Any]:
    return record(field("value", value), field("children", array("R")))


PROMOTIONS: list[Row] = [
    ("int", "int", (), ()),
    ("int", "long", (), TYPE),
    ("int", "float", (), TYPE),
    ("int", "double", (), TYPE),
    ("long", "float", (), TYPE),
    ("long", "double", (), TYPE),
    ("float", "double", (), TYPE),
    ("string", "bytes", (), ()),
    ("int", "string", TYPE, TYPE),
    ("boolean", "int", TYPE, TYPE),
    ("null", "int", TYPE, TYPE),
    ("bytes", fixed(4), TYPE, TYPE),
    (array("int"), mapping("int"), TYPE, TYPE),
    (array("int"), array("long"), (), TYPE),
    (mapping("int"), mapping("long"), (), TYPE),
    (array(array("string")), array(array("int")), TYPE, TYPE),
    ({"type": "long", "logicalType": "timestamp-millis"}, "long", (), ()),
    ({"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-millis"}, (), TYPE),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
     {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 3}, (), ()),
]  # fmt: skip

FIELDS: list[Row] = [
    (record(field("a")), record(field("a"), field("b")), DEFAULT, ()),
    (record(field("a")), record(field("a"), field("b", default=0)), (), ()),
    (record(field("a")), record(field("a"), field("b", ["null", "int"], default=None)), (), ()),
    (record(field("a")), record(field("a"), field("b", ["null", "int"])), DEFAULT, ()),
    (record(field("a")), record(), (), DEFAULT),
    (record(field("a", default=1)), record(), (), ()),
    (record(field("a")), record(field("b")), DEFAULT, DEFAULT),
    (record(field("a")), record(field("b", aliases=["a"])), (), DEFAULT),
    (record(field("a", "int")), record(field("b", "string", aliases=["a"])), TYPE, DEFAULT),
    (record(field("a"), field("b")), record(field("a", aliases=["b"])), ("READER_FIELD_AMBIGUOUS",), DEFAULT),
    (record(field("a", "int")), record(field("a", "long")), (), TYPE),
    (record(field("a", "int")), record(field("a", "string")), TYPE, TYPE),
    (record(field("a"), field("b")), record(field("b"), field("a")), (), ()),
    (record(field("a", default=1)), record(field("a", default=2)), (), ()),
    (record(field("a", doc="x", order="ignore")), record(field("a")), (), ()),
    (record(field("a", enum("X"))), record(field("a", enum("X")), field("b", "E")), DEFAULT, ()),
    (record(field("a")), record(field("a"), field("b", enum("X", default="X"))), DEFAULT, ()),
    (record(field("r", record(field("a"), name="I"))), record(field("r", record(field("b"), name="I"))), DEFAULT,
     DEFAULT),
    (record(field("a", "int"), field("b", "string")), record(field("a", "string"), field("c")), (*TYPE, *DEFAULT),
     (*TYPE, *DEFAULT)),
    ({**record(field("a")), "type": "error"}, record(field("a")), (), ()),
]  # fmt: skip

NAMES: list[Row] = [
    (record(name="A"), record(name="B"), NAME, NAME),
    (record(name="A"), record(name="B", aliases=["A"]), (), NAME),
    (record(name="n.A"), record(name="m.A"), (), ()),
    (record(name="n.A"), record(name="m.B", aliases=["n.A"]), (), NAME),
    (record(name="n.A"), record(name="m.B", aliases=["A"]), NAME, NAME),
    (record(name="n.A"), record(name="n.B", aliases=["A"]), (), NAME),
    (enum("X", name="A"), enum("X", name="B"), NAME, NAME),
    (enum("X", name="A"), enum("X", name="B", aliases=["A"]), (), NAME),
    (fixed(4, name="A"), fixed(4, name="B"), NAME, NAME),
    (fixed(4, name="A"), fixed(4, name="B", aliases=["A"]), (), NAME),
    (fixed(4), fixed(8), SIZE, SIZE),
    (fixed(4, name="A"), fixed(8, name="B"), (*NAME, *SIZE), (*NAME, *SIZE)),
    (record(name="A"), enum("X", name="A"), TYPE, TYPE),
]  # fmt: skip

ENUMS: list[Row] = [
    (enum("X"), enum("X", "Y"), (), SYMBOLS),
    (enum("X", "Y"), enum("Y", "X"), (), ()),
    (enum("X", "Y"), enum("X", default="X"), (), ()),
    (enum("X", "Y"), enum("Z"), SYMBOLS, SYMBOLS),
    (enum("X"), "string", TYPE, TYPE),
    (record(field("a", ["null", enum("X", "Y", default="X")])),
     record(field("a", ["null", enum("X", default="X")])), (), ()),
    (record(field("a", ["null", enum("X", "Y")])), record(field("a", ["null", enum("X")])), BRANCH, ()),
    (record(field("a", enum("X", "Y"))), record(field("a", enum("X", "Z", default="Z"))), (), SYMBOLS),
    (mapping(enum("X", "Y", name="A")), mapping(enum("X", name="B", aliases=["A"], default="X")), (), NAME),
]  # fmt: skip

UNIONS: list[Row] = [
    (["int"], ["int", "string"], (), BRANCH),
    (["int", "string"], ["string", "int"], (), ()),
    (["int", "null"], ["long", "null"], (), BRANCH),
    ("int", ["null", "int"], (), TYPE),
    ("int", ["null", "long"], (), (*TYPE, *TYPE)),
    ("int", ["null", "string"], BRANCH, (*TYPE, *TYPE)),
    (["int", "string"], "string", TYPE, ()),
    (["int", "long"], "double", (), BRANCH),
    (["string"], ["bytes"], (), ()),
    ([], ["int"], (), BRANCH),
    ([record(field("a"), name="A")], [record(field("a"), name="A"), record(field("b"), name="B")], (), BRANCH),
    ([record(field("a"), name="A")], [record(field("b"), name="B"), record(field("a"), name="A")], (), BRANCH),
    ([record(field("a"), name="A")], [record(field("b"), name="A")], BRANCH, BRANCH),
    (record(field("a", ["null", "int"])), record(field("a", ["null", "int", "string"])), (), BRANCH),
    (array(["null", enum("X")]), array(["null", enum("X", "Y")]), (), BRANCH),
    ([record(field("a"), name="A")], [record(field("a"), name="B", aliases=["A"])], (), BRANCH),
    (["null", fixed(4)], ["null", fixed(8)], BRANCH, BRANCH),
    (["null", {"type": "int", "logicalType": "date"}],
     ["null", {"type": "long", "logicalType": "timestamp-millis"}], (), BRANCH),
    (["null", {"type": "bytes", "logicalType": "decimal", "precision": 4}], ["null", "string"], (), ()),
    (record(field("a", record(field("x"), name="I"))), record(field("a", ["null", record(field("x"), name="I")])), (),
     TYPE),
    (record(field("r", record(field("x"), name="I"))),
     record(field("r", record(field("x"), field("y", ["null", "string"], default=None), name="J", aliases=["I"]))), (),
     NAME),
]  # fmt: skip

RECURSIVE: list[Row] = [
    (tree("int"), tree("int"), (), ()),
    (tree("int"), tree("long"), (), TYPE),
    (tree("int"), tree("string"), TYPE, TYPE),
    (record(field("next", ["null", "R"])), record(field("next", ["null", "R"]), field("v", default=0)), (), ()),
    (record(field("next", ["null", "R"])), record(field("next", ["null", "R"]), field("v")), DEFAULT, ()),
    (record(field("next", ["null", "R"]), field("v")), record(field("next", ["null", "R"]), field("v", "string")), TYPE,
     TYPE),
]  # fmt: skip


def avro(schema: Any) -> Schema:
    return parse(SchemaType.AVRO, json.dumps(schema))


def kinds(reader: Schema, writer: Schema) -> Kinds:
    return tuple(found.kind for found in differences(reader, writer))


@pytest.mark.parametrize(
    ("old", "new", "backward", "forward"), [*PROMOTIONS, *FIELDS, *NAMES, *ENUMS, *UNIONS, *RECURSIVE]
)
def test_verdicts(old: Any, new: Any, backward: Kinds, forward: Kinds) -> None:
    before, after = avro(old), avro(new)
    assert kinds(after, before) == backward
    assert kinds(before, after) == forward
    assert kinds(before, before) == kinds(after, after) == ()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            record(field("a")),
            record(field("a"), field("b")),
            "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'b' at path '/fields/1' in the "
            "new schema has no default value and is missing in the old schema', additionalInfo:'b'}",
        ),
        (
            record(field("a", ["null", "int"])),
            record(field("a", ["null", "string"])),
            "{errorType:'MISSING_UNION_BRANCH', description:'The new schema is missing a type inside a union field at "
            "path '/fields/0/type/1' in the old schema', additionalInfo:'reader union lacking writer type: INT'}",
        ),
        (
            array(enum("X", "Y")),
            array(enum("Z")),
            "{errorType:'MISSING_ENUM_SYMBOLS', description:'The new schema is missing enum symbols '[X, Y]' at path "
            "'/items/symbols' in the old schema', additionalInfo:'[X, Y]'}",
        ),
        (
            mapping("int"),
            mapping("string"),
            "{errorType:'TYPE_MISMATCH', description:'The type (path '/values') of a field in the new schema does not "
            "match with the old schema', additionalInfo:'reader type: STRING not compatible with writer type: INT'}",
        ),
        (
            record(name="n.A"),
            record(name="B"),
            "{errorType:'NAME_MISMATCH', description:'The name of the schema has changed (path '/name')', "
            "additionalInfo:'expected: n.A'}",
        ),
        (
            fixed(4),
            fixed(8),
            "{errorType:'FIXED_SIZE_MISMATCH', description:'The size of FIXED type field at path '/size' in the new "
            "schema does not match with the old schema', additionalInfo:'expected: 4, found: 8'}",
        ),
    ],
)
def test_messages_are_those_of_the_registry(old: Any, new: Any, message: str) -> None:
    assert incompatibilities(avro(new), avro(old), reader_is="new", writer_is="old") == [message]


def test_a_verdict_that_relied_on_a_pair_that_fails_later_is_forgotten() -> None:
    # While R is compared, it counts as compatible, and so does W, which has an R. R is not, because of its field v.
    def schema(v: str) -> dict[str, Any]:
        inner = record(field("w", ["null", record(field("r", "R"), name="W")]), field("v", v))
        return record(field("one", ["null", inner]), field("two", ["null", "W"]), name="Outer")

    found = differences(avro(schema("string")), avro(schema("int")))
    assert [(each.kind, each.path) for each in found] == [
        ("MISSING_UNION_BRANCH", "/fields/0/type/1"),
        ("MISSING_UNION_BRANCH", "/fields/1/type/1"),
    ]


def test_schemas_of_different_formats_do_not_read_each_other() -> None:
    other = parse(SchemaType.JSON, '{"type": "string"}')
    assert incompatibilities(avro("string"), other) == ["Incompatible because of different schema type"]


def test_schemas_that_are_nested_too_deeply_are_not_called_compatible(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(reader: Schema, writer: Schema) -> Any:
        raise RecursionError

    monkeypatch.setattr("skylog.schemas.compatibility.differences", too_deep)
    assert incompatibilities(avro("int"), avro("int"), reader_is="new", writer_is="old") == [
        "The new and the old schema are nested too deeply to be compared"
    ]
