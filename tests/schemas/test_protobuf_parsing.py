"""Protobuf schemas: texts and descriptors, one notation for both, imports, and messages that name the place."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from skylog.schemas import InvalidSchema, Schema, SchemaType, parse
from skylog.schemas.protobuf import serialized

ORDER = """
// An order.
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
import "confluent/meta.proto";
import "confluent/types/decimal.proto";
import "google/type/money.proto";
import public "thing.proto";
option java_package = "x.y";

message Order {
  option (confluent.message_meta) = { doc: "an \\"order\\"", params: [{ key: "a", value: "b" }] };
  reserved 5, 7 to 9, 1000 to max;
  reserved "old";
  string id = 1 [json_name = "ID", deprecated = true];
  google.protobuf.Timestamp at = 2;
  optional int32 n = 3;
  map<string, Item> items = 4;
  oneof how { string card = 10; Cash cash = 11; }
  message Cash { google.type.Money money = 1; confluent.type.Decimal exact = 2; }
  enum State { option allow_alias = true; NEW = 0; DONE = 1; ENDED = 1; BAD = -3; }
  State state = 12 [(confluent.field_meta) = { tags: "PII", tags: "X" }];
  repeated int32 xs = 13 [packed = false];
  repeated other.Thing things = 14;
}
message Item { int64 quantity = 1; }
service Shop {
  rpc Buy (Order) returns (stream Item) { option deprecated = true; }
  rpc Sell (Item) returns (Item);
}
"""
THING = """syntax = "proto2";
package other;
message Thing {
  required string s = 1 [default = "a\\"b\\n"];
  optional bytes b = 2 [default = "\\001\\"z"];
  extensions 100 to 199;
  optional group G = 3 { optional int32 x = 1; }
  optional double d = 4 [default = inf];
  optional E e = 5 [default = B];
  enum E { A = 1; B = 2; reserved 5 to max; reserved "Q"; }
}
extend Thing { optional int32 more = 100; }
"""
REFERENCES = {"thing.proto": THING}


def protobuf(text: str, **references: str) -> Schema:
    return parse(SchemaType.PROTOBUF, text, references)


def test_the_canonical_text_is_a_schema_with_the_same_descriptor() -> None:
    for text, references in ((ORDER, REFERENCES), (THING, {})):
        schema = parse(SchemaType.PROTOBUF, text, references)
        again = parse(SchemaType.PROTOBUF, schema.canonical, references)
        assert again.canonical == schema.canonical
        one, other = (
            descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(serialized(each)))
            for each in (schema, again)
        )
        assert one == other


def test_the_canonical_text_has_all_definitions() -> None:
    canonical = parse(SchemaType.PROTOBUF, ORDER, REFERENCES).canonical
    for line in (
        'import public "thing.proto";',
        '  option (confluent.message_meta) = { doc: "an \\"order\\"" params { key: "a" value: "b" } };',
        "  reserved 5, 7 to 9, 1000 to max;",
        '  string id = 1 [json_name = "ID", deprecated = true];',
        "  optional int32 n = 3;",
        "  map<string, .shop.v1.Item> items = 4;",
        "    .shop.v1.Order.Cash cash = 11;",
        '  .shop.v1.Order.State state = 12 [(confluent.field_meta) = { tags: "PII" tags: "X" }];',
        "  repeated int32 xs = 13 [packed = false];",
        "    BAD = -3;",
        "  rpc Sell (.shop.v1.Item) returns (.shop.v1.Item);",
    ):
        assert line in canonical.splitlines()


def test_a_text_and_its_descriptor_are_the_same_schema() -> None:
    text = parse(SchemaType.PROTOBUF, ORDER, REFERENCES)
    descriptor = parse(SchemaType.PROTOBUF, serialized(text), REFERENCES)
    assert descriptor.canonical == text.canonical
    assert descriptor.normalized == text.normalized
    assert descriptor.name == text.name == "shop.v1.Order"


def test_the_descriptor_of_generated_code_is_a_schema() -> None:
    # as confluent-kafka's ProtobufSerializer registers it
    text = base64.standard_b64encode(timestamp_pb2.DESCRIPTOR.serialized_pb).decode("ascii")
    assert "int64 seconds = 1;" in parse(SchemaType.PROTOBUF, text).canonical


def test_a_reference_may_be_a_descriptor() -> None:
    thing = serialized(parse(SchemaType.PROTOBUF, THING))
    with_descriptor = parse(SchemaType.PROTOBUF, ORDER, {"thing.proto": thing})
    assert with_descriptor.canonical == parse(SchemaType.PROTOBUF, ORDER, REFERENCES).canonical


def test_comments_white_space_and_the_form_of_names_do_not_matter() -> None:
    one = parse(SchemaType.PROTOBUF, 'syntax = "proto3"; package p; message A { B b = 1; } message B { }')
    other = parse(
        SchemaType.PROTOBUF, '/* x */ syntax="proto3";\npackage p;\nmessage A {\n .p.B b = 1; // y\n}\nmessage B {}'
    )
    assert one.canonical == other.canonical


def test_the_normalized_text_has_numbers_in_order() -> None:
    one = parse(
        SchemaType.PROTOBUF, 'syntax = "proto3"; enum E { Z = 0; A = 1; B = 2; } message M { E b = 2; E a = 1; }'
    )
    other = parse(
        SchemaType.PROTOBUF, 'syntax = "proto3"; enum E { Z = 0; B = 2; A = 1; } message M { E a = 1; E b = 2; }'
    )
    assert one.canonical != other.canonical
    assert one.normalized == other.normalized
    assert parse(SchemaType.PROTOBUF, one.normalized).normalized == one.normalized


def test_a_text_without_syntax_is_proto2(capfd: pytest.CaptureFixture[str]) -> None:
    schema = parse(SchemaType.PROTOBUF, "message M { required int32 a = 1; }")
    assert schema.canonical.startswith('syntax = "proto2";')
    assert schema.name == "M"
    assert capfd.readouterr() == ("", "")


def test_editions_are_schemas_too() -> None:
    text = 'edition = "2023"; message M { int32 a = 1 [features.field_presence = IMPLICIT]; reserved x, y; }'
    schema = parse(SchemaType.PROTOBUF, text)
    assert parse(SchemaType.PROTOBUF, schema.canonical).canonical == schema.canonical
    assert 'edition = "2023";' in schema.canonical
    assert "reserved x, y;" in schema.canonical


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the schema defines no message"),
        ('syntax = "proto3";', "the schema defines no message"),
        ('syntax = "proto3";\nmessage A {\n  strin x = 1;\n}', 'at line 3, column 3: "strin" is not defined'),
        ("message A {\n  optional strin x = 1;\n}", 'at line 2, column 12: "strin" is not defined'),
        ('syntax = "proto3"; message A { int32 x = 1; int32 y = 1; }', "Field number 1 has already been used"),
        ('syntax = "proto3"; import "x.proto"; message A { }', "column 20: Import \"x.proto\" was not found"),
        ('syntax = "proto3"; import "x.proto"; message A { }', "add a reference with this name"),
        ('syntax = "proto3"; message A {', "at line 1, column 31: Reached end of input"),
        ('{"type": "string"}', "at line 1, column 1: Expected top-level statement"),
        ("AAAA", "neither a .proto text nor a FileDescriptorProto in base64"),
        ("message", "neither a .proto text nor a FileDescriptorProto in base64"),
    ],
)  # fmt: skip
def test_an_invalid_schema_is_refused_with_the_place(text: str, message: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse(SchemaType.PROTOBUF, text)
    assert message in str(caught.value)


def test_a_descriptor_with_an_unknown_type_is_refused() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", syntax="proto3")
    field = file.message_type.add(name="M").field.add(name="a", number=1, type_name=".Nowhere", label=1, type=11)
    with pytest.raises(InvalidSchema, match="the descriptor is not valid"):
        parse(SchemaType.PROTOBUF, base64.b64encode(file.SerializeToString()).decode())
    field.type_name = ".M"
    assert parse(SchemaType.PROTOBUF, base64.b64encode(file.SerializeToString()).decode()).name == "M"


def test_a_mistake_in_a_reference_names_the_reference() -> None:
    with pytest.raises(InvalidSchema, match=r"in the reference a/x.proto: at line 2, column 1"):
        parse(
            SchemaType.PROTOBUF,
            'syntax = "proto3"; import "a/x.proto"; message A { }',
            {"a/x.proto": 'syntax = "proto3";\nmess'},
        )


@pytest.mark.parametrize("name", ["../x.proto", "/tmp/x.proto", "a/../../x.proto", "-x.proto", "a\\x.proto", ""])
def test_a_reference_cannot_leave_its_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSchema, match="is not a name that a schema can import"):
        parse(SchemaType.PROTOBUF, 'syntax = "proto3"; message A { }', {name: THING})
