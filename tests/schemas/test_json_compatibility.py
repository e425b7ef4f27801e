"""Verdicts of the registry's rules for pairs of JSON Schemas, each pair in both directions.

A row has an old schema, a new one, why the new one cannot read old data, and why the old one cannot read new data.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from skylog.schemas import SchemaType, parse
from skylog.schemas.compatibility import differences, incompatibilities

STRING = {"type": "string"}
INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
DRAFT4 = {"$schema": "http://json-schema.org/draft-04/schema#"}
DRAFT6 = {"$schema": "http://json-schema.org/draft-06/schema#"}
DRAFT2019 = {"$schema": "https://json-schema.org/draft/2019-09/schema"}
DRAFT2020 = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def text(**limits: Any) -> dict[str, Any]:
    return {"type": "string", **limits}


def number(**limits: Any) -> dict[str, Any]:
    return {"type": "number", **limits}


def obj(properties: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "object", **({} if properties is None else {"properties": properties}), **more}


def closed(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return obj(properties, additionalProperties=False, **more)


def array(items: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": "array", **({} if items is None else {"items": items}), **more}


Kinds = tuple[str, ...]
Row = tuple[Any, Any, Kinds, Kinds]
A, AB = {"a": STRING}, {"a": STRING, "b": INTEGER}

TYPES: list[Row] = [
    (STRING, STRING, (), ()),
    (STRING, NUMBER, ("TYPE_CHANGED",), ("TYPE_CHANGED",)),
    (INTEGER, NUMBER, (), ("TYPE_NARROWED",)),
    (STRING, {}, (), ("TYPE_CHANGED",)),
    (STRING, True, (), ("TYPE_CHANGED",)),
    (False, STRING, (), ("TYPE_CHANGED",)),
    ({}, True, (), ()),
    ({"type": "null"}, {"type": "boolean"}, ("TYPE_CHANGED",), ("TYPE_CHANGED",)),
    ({"title": "t"}, {"title": "u", "description": "d"}, (), ()),
    ({"type": ["string"]}, {"type": ["string", "null"]}, (), ("SUM_TYPE_NARROWED",)),
    (STRING, {"type": ["string", "null"]}, (), ("TYPE_CHANGED",)),
    ({"type": ["string"]}, STRING, (), ()),
    ({"type": ["integer", "null"]}, {"type": ["number", "null"]}, (), ("COMBINED_TYPE_SUBSCHEMAS_CHANGED",)),
    ({"properties": {"a": STRING}}, obj({"a": STRING}), (), ()),
    ({"properties": {}}, {}, (), ("TYPE_CHANGED",)),
    ({"not": NUMBER}, {"not": INTEGER}, (), ("NOT_TYPE_EXTENDED",)),
    ({"enum": ["a"]}, {"enum": ["a", "b"]}, (), ("ENUM_ARRAY_NARROWED",)),
    ({"enum": ["a"]}, {"enum": ["b"]}, ("ENUM_ARRAY_CHANGED",), ("ENUM_ARRAY_CHANGED",)),
    ({"enum": [1]}, {"enum": [True]}, ("ENUM_ARRAY_CHANGED",), ("ENUM_ARRAY_CHANGED",)),
    ({"enum": ["a", "b"]}, {"enum": ["b", "a"]}, (), ()),
    ({"const": {"a": [1]}}, {"const": {"a": [1]}}, (), ()),
    ({"const": "a"}, {"const": "b"}, ("ENUM_ARRAY_CHANGED",), ("ENUM_ARRAY_CHANGED",)),
    ({**DRAFT4, "const": "a"}, {**DRAFT4, "const": "b"}, (), ()),
    ({**DRAFT6, "const": "a"}, {**DRAFT6, "const": "b"}, ("ENUM_ARRAY_CHANGED",), ("ENUM_ARRAY_CHANGED",)),
    (text(enum=["a"]), STRING, (), ("TYPE_CHANGED",)),
    (text(enum=["a"]), text(enum=["a", "b"]), (), ("COMBINED_TYPE_SUBSCHEMAS_CHANGED",)),
]  # fmt: skip

LIMITS: list[Row] = [
    (text(maxLength=5), text(maxLength=6), (), ("MAX_LENGTH_DECREASED",)),
    (text(maxLength=5), STRING, (), ("MAX_LENGTH_ADDED",)),
    (text(minLength=5), text(minLength=4), (), ("MIN_LENGTH_INCREASED",)),
    (text(minLength=5), STRING, (), ("MIN_LENGTH_ADDED",)),
    (text(pattern="a"), STRING, (), ("PATTERN_ADDED",)),
    (text(pattern="a"), text(pattern="b"), ("PATTERN_CHANGED",), ("PATTERN_CHANGED",)),
    (text(format="date"), text(format="time"), (), ()),
    (number(maximum=5), number(maximum=5.5), (), ("MAXIMUM_DECREASED",)),
    (number(maximum=5), NUMBER, (), ("MAXIMUM_ADDED",)),
    (number(minimum=0), number(minimum=-1), (), ("MINIMUM_INCREASED",)),
    (number(minimum=0), NUMBER, (), ("MINIMUM_ADDED",)),
    (number(exclusiveMaximum=5), number(exclusiveMaximum=6), (), ("EXCLUSIVE_MAXIMUM_DECREASED",)),
    (number(exclusiveMaximum=5), NUMBER, (), ("EXCLUSIVE_MAXIMUM_ADDED",)),
    (number(exclusiveMinimum=5), number(exclusiveMinimum=4), (), ("EXCLUSIVE_MINIMUM_INCREASED",)),
    (number(exclusiveMinimum=5), NUMBER, (), ("EXCLUSIVE_MINIMUM_ADDED",)),
    (
        {**DRAFT4, **number(maximum=5, exclusiveMaximum=True)},
        {**DRAFT4, **number(maximum=5)},
        (),
        ("EXCLUSIVE_MAXIMUM_ADDED",),
    ),
    (number(multipleOf=10), number(multipleOf=5), (), ("MULTIPLE_OF_EXPANDED",)),
    (number(multipleOf=10), number(multipleOf=3), ("MULTIPLE_OF_CHANGED",), ("MULTIPLE_OF_CHANGED",)),
    (number(multipleOf=0.5), number(multipleOf=0.1), (), ("MULTIPLE_OF_EXPANDED",)),
    (number(multipleOf=10), NUMBER, (), ("MULTIPLE_OF_ADDED",)),
    (obj(maxProperties=1), obj(maxProperties=2), (), ("MAX_PROPERTIES_DECREASED",)),
    (obj(maxProperties=1), obj(), (), ("MAX_PROPERTIES_ADDED",)),
    (obj(minProperties=2), obj(minProperties=1), (), ("MIN_PROPERTIES_INCREASED",)),
    (obj(minProperties=2), obj(), (), ("MIN_PROPERTIES_ADDED",)),
    (array(maxItems=1), array(maxItems=2), (), ("MAX_ITEMS_DECREASED",)),
    (array(maxItems=1), array(), (), ("MAX_ITEMS_ADDED",)),
    (array(minItems=2), array(minItems=1), (), ("MIN_ITEMS_INCREASED",)),
    (array(minItems=2), array(), (), ("MIN_ITEMS_ADDED",)),
    (array(uniqueItems=True), array(), (), ("UNIQUE_ITEMS_ADDED",)),
]  # fmt: skip

OBJECTS: list[Row] = [
    # open: a property cannot be added, since old data may have anything under its name
    (obj(A), obj(AB), ("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",), ()),
    (obj(A), obj({**A, "b": {}}), (), ()),
    (obj(A), obj({**A, "b": True}), (), ()),
    (obj({"a": STRING}), obj({"b": STRING}), ("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",),
     ("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",)),
    (obj(A, additionalProperties={}), obj(AB), ("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",), ()),
    # closed: a property can be added, and not removed
    (closed(A), closed(AB), (), ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",)),
    (closed(A), closed(AB, required=["b"]), ("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",),
     ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",)),
    (closed(A), closed({**A, "b": {"type": "integer", "default": 1}}, required=["b"]), (),
     ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",)),
    (closed(A), closed({**A, "b": False}), (), ()),
    (closed(A), obj(A), (), ("ADDITIONAL_PROPERTIES_REMOVED",)),
    (closed(A), obj(AB), (), ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", "ADDITIONAL_PROPERTIES_REMOVED")),
    # partially open
    (obj(A, additionalProperties=STRING), obj({**A, "b": STRING}, additionalProperties=STRING), (), ()),
    (obj(A, additionalProperties=STRING), obj(AB, additionalProperties=STRING),
     ("TYPE_CHANGED", "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
     ("TYPE_CHANGED", "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")),
    (obj(A, additionalProperties=STRING), obj({**A, "b": STRING}, additionalProperties=STRING, required=["b"]),
     ("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",), ()),
    (closed(A, patternProperties={"^I_": INTEGER}), closed({**A, "I_1": NUMBER}, patternProperties={"^I_": INTEGER}),
     (), ("TYPE_NARROWED", "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")),
    (closed({**A, "I_1": INTEGER}), closed(A, patternProperties={"^I_": NUMBER}), (),
     ("TYPE_NARROWED", "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")),
    (closed(A, patternProperties={"(?=I_)": INTEGER}), closed({**A, "I_1": STRING}), (),
     ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",)),
    (obj(A, patternProperties={"^I_": INTEGER}), obj(AB, patternProperties={"^I_": INTEGER}), (),
     ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",)),
    (obj(additionalProperties=INTEGER), obj(additionalProperties=NUMBER), (), ("TYPE_NARROWED",)),
    (obj(additionalProperties=INTEGER), obj(), (), ("ADDITIONAL_PROPERTIES_NARROWED",)),
    (obj(additionalProperties=False), obj(additionalProperties=INTEGER), (), ("ADDITIONAL_PROPERTIES_REMOVED",)),
    ({**DRAFT2020, **obj(A, unevaluatedProperties=False)}, {**DRAFT2020, **obj(AB, unevaluatedProperties=False)}, (),
     ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",)),
    ({**DRAFT2020, **obj(A, unevaluatedProperties=False)}, {**DRAFT2020, **obj(A)}, (),
     ("UNEVALUATED_PROPERTIES_REMOVED",)),
    (closed({**A, "b": STRING}), obj(A, additionalProperties={"oneOf": [STRING, {"type": "null"}]}), (),
     ("TYPE_CHANGED", "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "ADDITIONAL_PROPERTIES_REMOVED")),
    # required, types and nested properties
    (obj(A, required=["a"]), obj(A, required=["b"]), (), ("REQUIRED_ATTRIBUTE_ADDED",)),
    (obj(A, required=["a"]), obj(A), (), ("REQUIRED_ATTRIBUTE_ADDED",)),
    (obj(A), obj({"a": {"type": "string", "default": ""}}, required=["a"]), (), ()),
    (obj(A), obj({"a": NUMBER}), ("TYPE_CHANGED",), ("TYPE_CHANGED",)),
    (obj({"a": obj({"b": INTEGER})}), obj({"a": obj({"b": NUMBER})}), (), ("TYPE_NARROWED",)),
    (obj({"a": obj()}), obj({"a": obj({"b": NUMBER})}), ("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",), ()),
    (obj(A, required=["a"]), closed(A, required=["a"]), ("ADDITIONAL_PROPERTIES_REMOVED",), ()),
    (closed({"a": obj(A)}), closed({"a": obj(AB)}), ("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",), ()),
    (closed({"a": closed(A)}), closed({"a": closed(AB)}), (), ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",)),
    (closed({"a": array(closed(A))}), closed({"a": array(closed(AB))}), (),
     ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",)),
    (closed({"a": {"oneOf": [{"type": "null"}, STRING]}}),
     closed({"a": {"oneOf": [{"type": "null"}, STRING, NUMBER]}}), (), ("SUM_TYPE_NARROWED",)),
    # dependencies
    (obj(dependencies={"a": ["b"]}), obj(), (), ("DEPENDENCY_ARRAY_ADDED",)),
    (obj(dependencies={"a": ["b", "c"]}), obj(dependencies={"a": ["b"]}), (), ("DEPENDENCY_ARRAY_EXTENDED",)),
    (obj(dependencies={"a": ["b"]}), obj(dependencies={"a": ["c"]}), ("DEPENDENCY_ARRAY_CHANGED",),
     ("DEPENDENCY_ARRAY_CHANGED",)),
    (obj(dependencies={"a": closed(A)}), obj(), (), ("DEPENDENCY_SCHEMA_ADDED",)),
    (obj(dependencies={"a": closed(A)}), obj(dependencies={"a": obj(A)}), (), ("ADDITIONAL_PROPERTIES_REMOVED",)),
    ({**DRAFT2019, **obj(dependentRequired={"a": ["b"]})}, {**DRAFT2019, **obj()}, (), ("DEPENDENCY_ARRAY_ADDED",)),
    ({**DRAFT2019, **obj(dependentSchemas={"a": obj()})}, {**DRAFT2019, **obj()}, (), ("DEPENDENCY_SCHEMA_ADDED",)),
]  # fmt: skip

ARRAYS: list[Row] = [
    (array(INTEGER), array(NUMBER), (), ("TYPE_NARROWED",)),
    (array(INTEGER), array(), (), ("SCHEMA_ADDED",)),
    (array(False), array(STRING), (), ("TYPE_CHANGED",)),
    (array([STRING]), array([STRING, INTEGER]), ("ITEM_ADDED_TO_OPEN_CONTENT_MODEL",), ()),
    (array([STRING]), array([STRING, {}]), (), ()),
    (array([STRING], additionalItems=False), array([STRING, INTEGER], additionalItems=False), (),
     ("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL",)),
    (array([STRING], additionalItems=False), array([STRING, False], additionalItems=False), (), ()),
    (array([STRING], additionalItems=INTEGER), array([STRING, NUMBER], additionalItems=INTEGER), (),
     ("TYPE_NARROWED", "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")),
    (array([STRING], additionalItems=NUMBER), array([STRING, INTEGER], additionalItems=NUMBER),
     ("TYPE_NARROWED", "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"), ()),
    (array([STRING], additionalItems=False), array([STRING]), (), ("ADDITIONAL_ITEMS_REMOVED",)),
    (array([STRING], additionalItems=STRING), array([STRING]), (), ("ADDITIONAL_ITEMS_NARROWED",)),
    (array(additionalItems=False), array(additionalItems=True), (), ("ADDITIONAL_ITEMS_REMOVED",)),
    (array([INTEGER]), array([NUMBER]), (), ("TYPE_NARROWED",)),
    (array([STRING, NUMBER]), array(), (), ("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", "ITEM_ADDED_TO_OPEN_CONTENT_MODEL")),
    ({**DRAFT2020, **array(prefixItems=[STRING])}, {**DRAFT2020, **array(prefixItems=[STRING, STRING])},
     ("ITEM_ADDED_TO_OPEN_CONTENT_MODEL",), ()),
    ({**DRAFT2020, **array(False, prefixItems=[STRING])}, {**DRAFT2020, **array(prefixItems=[STRING])}, (),
     ("ADDITIONAL_ITEMS_REMOVED",)),
    ({**DRAFT2020, **array(INTEGER)}, {**DRAFT2020, **array(NUMBER)}, (), ("TYPE_NARROWED",)),
    ({**DRAFT2020, **array(unevaluatedItems=False)}, {**DRAFT2020, **array()}, (), ("UNEVALUATED_ITEMS_REMOVED",)),
    ({**DRAFT2020, **array(maxContains=2)}, {**DRAFT2020, **array(maxContains=3)}, (), ("MAX_CONTAINS_DECREASED",)),
    ({**DRAFT2020, **array(minContains=2)}, {**DRAFT2020, **array()}, (), ("MIN_CONTAINS_ADDED",)),
]  # fmt: skip

COMBINED: list[Row] = [
    ({"oneOf": [STRING]}, {"oneOf": [NUMBER, STRING]}, (), ("SUM_TYPE_NARROWED",)),
    ({"anyOf": [STRING]}, {"anyOf": [NUMBER]}, ("COMBINED_TYPE_SUBSCHEMAS_CHANGED",),
     ("COMBINED_TYPE_SUBSCHEMAS_CHANGED",)),
    ({"oneOf": [text(maxLength=5)]}, {"oneOf": [{"type": "boolean"}, text(maxLength=8)]}, (),
     ("SUM_TYPE_NARROWED", "COMBINED_TYPE_SUBSCHEMAS_CHANGED")),
    ({"allOf": [STRING, {"enum": ["a"]}]}, {"allOf": [{"enum": ["a"]}, STRING]}, (), ()),
    ({"allOf": [STRING, {"enum": ["a"]}]}, {"allOf": [STRING]}, (), ("PRODUCT_TYPE_EXTENDED",)),
    ({"allOf": [STRING, STRING]}, {"allOf": [STRING]}, (), ()),
    ({"oneOf": [STRING]}, {"anyOf": [STRING]}, (), ()),
    ({"oneOf": [STRING, NUMBER]}, {"anyOf": [STRING, NUMBER]}, (), ("COMBINED_TYPE_CHANGED",)),
    ({"allOf": [STRING]}, {"anyOf": [NUMBER, STRING]}, (), ("COMBINED_TYPE_CHANGED",)),
    ({"allOf": [STRING]}, {"oneOf": [STRING]}, (), ()),
    ({"anyOf": [STRING]}, {"allOf": [NUMBER, STRING]}, ("COMBINED_TYPE_CHANGED",), ("SUM_TYPE_NARROWED",)),
    (STRING, {"anyOf": [NUMBER, STRING]}, (), ("TYPE_CHANGED",)),
    (STRING, {"oneOf": [NUMBER, STRING]}, (), ("TYPE_CHANGED",)),
    (STRING, {"allOf": [STRING, {"maxLength": 5}]}, ("TYPE_CHANGED",), ()),
    (STRING, {"allOf": [STRING]}, (), ()),
    # each of two must find its own
    ({"anyOf": [INTEGER, NUMBER]}, {"anyOf": [NUMBER, STRING]}, ("COMBINED_TYPE_SUBSCHEMAS_CHANGED",),
     ("COMBINED_TYPE_SUBSCHEMAS_CHANGED",)),
    ({"anyOf": [INTEGER, NUMBER]}, {"anyOf": [NUMBER, INTEGER]}, (), ()),
    ({"anyOf": [INTEGER, STRING]}, {"anyOf": [text(), NUMBER]}, (), ("COMBINED_TYPE_SUBSCHEMAS_CHANGED",)),
    ({**obj(A), "anyOf": [{"required": ["a"]}]}, obj(A), (), ("TYPE_CHANGED",)),
]  # fmt: skip

TREE = {"definitions": {"T": obj({"v": INTEGER, "next": {"$ref": "#/definitions/T"}})}, "$ref": "#/definitions/T"}
WIDER_TREE = {"definitions": {"U": obj({"v": NUMBER, "next": {"$ref": "#/definitions/U"}})}, "$ref": "#/definitions/U"}

REFERENCES: list[Row] = [
    (TREE, TREE, (), ()),
    (TREE, WIDER_TREE, (), ("TYPE_NARROWED",)),
    (obj({"next": {"$ref": "#"}}), obj({"next": {"$ref": "#"}}), (), ()),
    (obj({"a": INTEGER}), {**obj({"a": {"$ref": "#/definitions/n"}}), "definitions": {"n": NUMBER}}, (),
     ("TYPE_NARROWED",)),
    # up to draft 7, what stands beside a $ref does not count
    ({"definitions": {"s": STRING}, "$ref": "#/definitions/s", "maxLength": 5},
     {"definitions": {"s": STRING}, "$ref": "#/definitions/s"}, (), ()),
    ({**DRAFT2020, "$defs": {"s": STRING}, "$ref": "#/$defs/s", "maxLength": 5},
     {**DRAFT2020, "$defs": {"s": STRING}, "$ref": "#/$defs/s"}, (), ("TYPE_CHANGED",)),
    ({**DRAFT2019, "$id": "https://e.org/a", "$defs": {"s": {"$anchor": "s", **INTEGER}}, "$ref": "#s"},
     {**DRAFT2019, "$id": "https://e.org/a", "$defs": {"s": {"$anchor": "s", **NUMBER}}, "$ref": "#s"}, (),
     ("TYPE_NARROWED",)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "backward", "forward"), [*TYPES, *LIMITS, *OBJECTS, *ARRAYS, *COMBINED, *REFERENCES]
)
def test_verdicts(old: Any, new: Any, backward: Kinds, forward: Kinds) -> None:
    before, after = parse(SchemaType.JSON, json.dumps(old)), parse(SchemaType.JSON, json.dumps(new))
    assert tuple(found.kind for found in differences(after, before)) == backward
    assert tuple(found.kind for found in differences(before, after)) == forward
    assert differences(before, before) == []
    assert differences(after, after) == []


def test_the_sentence_names_path_and_schemas() -> None:
    old, new = (parse(SchemaType.JSON, json.dumps(obj({"x": obj(each)}))) for each in (A, AB))
    assert incompatibilities(new, old, reader_is="new", writer_is="old") == [
        '{errorType:"PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", description:"The new schema has an open content model and '
        "has a property or item at path '#/properties/x/properties/b' which is missing in the old schema\"}"
    ]
