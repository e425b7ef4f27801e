"""Avro schemas: what is accepted, their texts, and messages that name the place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from skylog.schemas import InvalidSchema, Schema, SchemaType, parse


def avro(schema: Any, **references: Any) -> Schema:
    texts = {name.replace("__", "."): json.dumps(text) for name, text in references.items()}
    return parse(SchemaType.AVRO, json.dumps(schema), texts)


def record(*fields: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields), **more}


def a_field(kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": "f", "type": kind, **more}


COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ('"string"', '"string"'),
        ('{ "type" : "string" }', '"string"'),
        ('{"type": "long", "logicalType": "timestamp-millis"}', '{"type":"long","logicalType":"timestamp-millis"}'),
        ('{"items": {"type": "int"}, "type": "array"}', '{"type":"array","items":"int"}'),
        ('{"type": "map", "values": ["null", "double"]}', '{"type":"map","values":["null","double"]}'),
        (
            '{"fields": [{"type": "int", "name": "f", "default": 1, "doc": "d"}], "name": "a.b.R", "type": "record"}',
            '{"type":"record","name":"R","namespace":"a.b","fields":[{"name":"f","type":"int","doc":"d","default":1}]}',
        ),
        (
            '{"type": "record", "name": "R", "namespace": "n", "fields": [{"name": "next", "type": ["null", "n.R"]}]}',
            '{"type":"record","name":"R","namespace":"n","fields":[{"name":"next","type":["null","R"]}]}',
        ),
        (
            '{"type": "enum", "name": "E", "default": "A", "aliases": ["x.F", "G"], "symbols": ["A"], "extra": 1}',
            '{"type":"enum","name":"E","symbols":["A"],"default":"A","extra":1,"aliases":["x.F","G"]}',
        ),
        (
            '{"size": 4, "name": "F", "type": "fixed", "doc": "é"}',
            '{"type":"fixed","name":"F","doc":"é","size":4}',
        ),
    ],
)
def test_the_canonical_text_has_one_notation(text: str, canonical: str) -> None:
    schema = parse(SchemaType.AVRO, text)
    assert schema.canonical == canonical
    assert parse(SchemaType.AVRO, canonical).canonical == canonical
    assert schema.text == text


def test_the_normalized_text_has_full_names_and_sorted_attributes() -> None:
    one = avro(record(a_field(COLOUR, b=1, a={"y": 1, "x": 2}, aliases=["q", "p"]), namespace="n"))
    other = avro(
        {**record(a_field({**COLOUR, "name": "n.Colour"}, a={"x": 2, "y": 1}, aliases=["p", "q"], b=1)), "name": "n.R"}
    )
    assert one.canonical != other.canonical
    assert one.normalized == other.normalized


def test_doc_and_defaults_make_another_schema() -> None:
    texts = {avro(record(a_field("int", **more))).canonical for more in ({}, {"doc": "d"}, {"default": 0})}
    assert len(texts) == 3


def test_a_record_has_a_name_and_other_types_have_none() -> None:
    assert avro(record(namespace="a.b")).name == "a.b.R"
    assert avro("int").name is None
    assert avro([record()]).name is None


def test_a_reference_is_a_type_that_another_schema_defines() -> None:
    schema = avro(record(a_field("n.Colour"), namespace="n"), n__Colour={**COLOUR, "namespace": "n"})
    assert schema.canonical == '{"type":"record","name":"R","namespace":"n","fields":[{"name":"f","type":"Colour"}]}'
    assert '"type":"n.Colour"' in schema.normalized


def test_references_are_found_in_any_order() -> None:
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "c", "type": "Colour"}]}
    assert avro(record(a_field("Outer")), Outer=outer, Colour=COLOUR).name == "R"
    assert avro(record(a_field("Outer")), Colour=COLOUR, Outer=outer).name == "R"


def test_a_field_may_use_a_type_that_an_earlier_field_defines() -> None:
    schema = avro(record(a_field(COLOUR), {"name": "g", "type": "Colour"}))
    assert schema.canonical.count("symbols") == 1


INVALID: list[tuple[Any, str]] = [
    ("{", "not JSON: Expecting property name enclosed in double quotes at line 1, column 2"),
    ("NaN", "NaN is not JSON"),
    ("7", "at /: 7 is not a type"),
    ('"strin"', "at /: the type strin is not defined"),
    ({"type": {"type": "int"}}, "at /: the type of a type must be a name"),
    ({}, 'at /: no "type"'),
    ({"type": "array"}, 'at /: the array has no "items"'),
    ({"type": "map", "values": "x.Y"}, "at /values: the type x.Y is not defined"),
    ([["null"]], "at /0: a union directly within a union"),
    (["int", {"type": "int"}], "at /1: the union has int twice"),
    ([COLOUR, "Colour"], "at /1: the union has Colour twice"),
    ({"type": "record", "name": "R"}, 'at /: the record has no list of "fields"'),
    ({"type": "record", "fields": []}, 'at /: the record has no "name"'),
    ({"type": "record", "name": "1R", "fields": []}, "at /: '1R' is not a name"),
    ({"type": "record", "name": "R", "namespace": "a..b", "fields": []}, "at /: 'a..b.R' is not a name"),
    ({"type": "fixed", "name": "int", "size": 1}, "at /: int is the name of a primitive type"),
    (record("f"), "at /fields/0: a field is an object"),
    (record({"name": "f"}), "at /fields/0: the field f has no \"type\""),
    (record({"name": "f-f", "type": "int"}), 'at /fields/0: "f-f" is not the name of a field'),
    (record(a_field("int"), a_field("int")), "at /fields/1: the field f is there twice"),
    (record(a_field("int", order="up")), "at /fields/0/order: the order is one of ascending, descending, ignore"),
    (record(a_field("int", aliases="g")), "at /fields/0/aliases: the aliases are not a list of names"),
    (record(a_field(COLOUR), {"name": "g", "type": COLOUR}), "at /fields/1/type: Colour is defined twice"),
    (record(a_field("Colour"), {"name": "g", "type": COLOUR}), "at /fields/0/type: the type Colour is not defined"),
    ({"type": "enum", "name": "E"}, 'at /: the enum has no list of "symbols"'),
    ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "at /symbols/1: the symbol A is there twice"),
    ({"type": "enum", "name": "E", "symbols": ["a-b"]}, 'at /symbols/0: "a-b" is not a symbol'),
    ({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}, 'at /default: the default "B" is not among'),
    ({"type": "fixed", "name": "F"}, 'at /: the fixed has no "size"'),
    ({"type": "fixed", "name": "F", "size": -1}, 'at /: the fixed has no "size"'),
    (record(a_field("int", default="1")), "at /fields/0/default: the default of the field f does not fit its type"),
    (record(a_field("int", default="1")), '"1" is not int'),
    (record(a_field("int", default=1 << 31)), "2147483648 is not int"),
    (record(a_field("long", default=1.5)), "1.5 is not long"),
    (record(a_field("boolean", default=0)), "0 is not boolean"),
    (record(a_field("double", default=True)), "true is not double"),
    (record(a_field("bytes", default="€")), "is not bytes"),
    (record(a_field(["null", "int"], default="x")), '"x" is not null or int'),
    (record(a_field(COLOUR, default="GREEN")), '"GREEN" is not a symbol of Colour'),
    (record(a_field({"type": "fixed", "name": "F", "size": 2}, default="abc")), '"abc" is not 2 bytes'),
    (record(a_field({"type": "array", "items": "int"}, default=[1, "2"])), '"2" is not int'),
    (record(a_field({"type": "map", "values": "int"}, default={"a": None})), "null is not int"),
    (record(a_field({**record(a_field("int")), "name": "I"}, default={})), "the field f of I is missing"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "message"), INVALID)
def test_an_invalid_schema_is_refused_with_the_place(schema: Any, message: str) -> None:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    with pytest.raises(InvalidSchema) as caught:
        parse(SchemaType.AVRO, text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "field",
    [
        a_field(["null", "int"], default=1),
        a_field(["null", "int"], default=None),
        a_field("double", default=1),
        a_field("long", default=-(1 << 63)),
        a_field("bytes", default="\u00ff"),
        a_field({"type": "map", "values": COLOUR}, default={"a": "RED"}),
        a_field({**record(a_field("int", default=1)), "name": "I"}, default={}),
    ],
)
def test_a_default_that_fits_is_accepted(field: dict[str, Any]) -> None:
    assert avro(record(field)).name == "R"


def test_a_mistake_in_a_reference_names_the_reference() -> None:
    with pytest.raises(InvalidSchema, match="in the reference C: at /symbols/0"):
        avro(record(a_field("C")), C={"type": "enum", "name": "C", "symbols": [1]})


def test_a_schema_that_is_nested_too_deeply_is_refused() -> None:
    text = '{"type":"array","items":' * 5000 + '"int"' + "}" * 5000
    with pytest.raises(InvalidSchema, match="nested too deeply"):
        parse(SchemaType.AVRO, text)
