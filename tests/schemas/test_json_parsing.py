"""JSON Schemas: what is accepted, their texts, references, and messages that name the place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from skylog.schemas import InvalidSchema, Schema, SchemaType, parse
from skylog.schemas.compatibility import differences

DRAFTS = (
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
)


def schema(raw: Any, references: dict[str, Any] | None = None) -> Schema:
    texts = {name: json.dumps(other) for name, other in (references or {}).items()}
    return parse(SchemaType.JSON, json.dumps(raw), texts)


def test_the_canonical_text_has_no_white_space_and_keeps_the_order() -> None:
    found = parse(SchemaType.JSON, '{ "type" : "object",\n "title": "é" }')
    assert found.canonical == '{"type":"object","title":"é"}'
    assert found.normalized == '{"title":"é","type":"object"}'
    assert found.name == "é"


def test_the_normalized_text_has_sorted_keywords() -> None:
    one, other = schema({"a": {"c": [2, 1], "b": 1}}), schema({"a": {"b": 1, "c": [2, 1]}})
    assert one.canonical != other.canonical
    assert one.normalized == other.normalized


@pytest.mark.parametrize("draft", DRAFTS)
def test_each_draft_has_its_rules(draft: str) -> None:
    assert schema({"$schema": draft, "type": "string"}).name is None
    with pytest.raises(InvalidSchema, match="at /type"):
        schema({"$schema": draft, "type": "text"})


def test_drafts_differ_in_what_they_accept() -> None:
    exclusive = {"type": "number", "maximum": 1, "exclusiveMaximum": True}
    assert schema({"$schema": DRAFTS[0], **exclusive})
    with pytest.raises(InvalidSchema, match="at /exclusiveMaximum: True is not of type 'number'"):
        schema({"$schema": DRAFTS[1], **exclusive})


def test_true_and_false_are_schemas() -> None:
    assert parse(SchemaType.JSON, "true").canonical == "true"
    assert parse(SchemaType.JSON, " false ").canonical == "false"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON: Expecting property name enclosed in double quotes at line 1, column 2"),
        ("[]", "at /: a JSON Schema is an object, true or false"),
        ('"string"', "at /: a JSON Schema is an object, true or false"),
        ('{"properties": {"a/b": {"type": "text"}}}', "at /properties/a~1b/type: 'text'"),
        ('{"required": "a"}', "at /required: 'a' is not of type 'array'"),
        ('{"minLength": -1}', "at /minLength: -1 is less than the minimum of 0"),
        ('{"items": [{"$ref": "#/definitions/x"}]}', "at /items/0: the reference #/definitions/x leads nowhere"),
        ('{"allOf": [{"$ref": "other.json"}]}', "at /allOf/0: the reference other.json leads nowhere"),
        ('{"definitions": {"a": {"$ref": "#/definitions/a"}}}', "at /definitions/a: the reference #/definitions/a"),
        ('{"$defs": {"a": {"$ref": "#nowhere"}}}', "at /$defs/a: the reference #nowhere leads nowhere"),
    ],
)
def test_an_invalid_schema_is_refused_with_the_place(text: str, message: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse(SchemaType.JSON, text)
    assert message in str(caught.value)


def test_a_mistake_in_a_reference_names_the_reference() -> None:
    with pytest.raises(InvalidSchema, match=r"in the reference o\.json: at /type"):
        schema({"$ref": "o.json"}, {"o.json": {"type": "text"}})
    with pytest.raises(InvalidSchema, match=r"in the reference o\.json: not JSON"):
        parse(SchemaType.JSON, '{"$ref": "o.json"}', {"o.json": "{"})


@pytest.mark.parametrize(
    ("own", "reference", "name"),
    [
        ({}, "order.json", "order.json"),
        ({}, "https://e.org/order.json", "https://e.org/order.json"),
        ({"$id": "https://e.org/a/main.json"}, "order.json", "order.json"),
        ({"$id": "https://e.org/a/main.json"}, "https://e.org/a/order.json", "order.json"),
        ({"$id": "https://e.org/a/main.json"}, "order.json", "https://e.org/a/order.json"),
        ({}, "order.json#/definitions/id", "order.json"),
    ],
)
def test_a_reference_to_another_schema_is_followed(own: dict[str, Any], reference: str, name: str) -> None:
    def with_type(kind: str) -> Schema:
        other = {"type": kind, "definitions": {"id": {"type": kind}}}
        return schema({**own, "properties": {"order": {"$ref": reference}}}, {name: other})

    assert differences(with_type("number"), with_type("integer")) == []
    assert [found.kind for found in differences(with_type("string"), with_type("integer"))] == ["TYPE_CHANGED"]


def test_references_may_refer_to_each_other() -> None:
    found = schema({"$ref": "a.json"}, {"a.json": {"items": {"$ref": "b.json"}}, "b.json": {"type": "string"}})
    assert differences(found, schema({"items": {"type": "string"}})) == []


def test_the_schemas_of_the_drafts_can_be_referred_to() -> None:
    assert schema({"properties": {"schema": {"$ref": DRAFTS[2]}}})
