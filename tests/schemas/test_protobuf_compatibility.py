"""Verdicts of the registry's rules for pairs of Protobuf schemas, each pair in both directions.

A row has an old schema, a new one, why the new one cannot read old data, and why the old one cannot read new data.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from skylog.schemas import Schema, SchemaType, parse
from skylog.schemas.compatibility import differences, incompatibilities
from skylog.schemas.protobuf import serialized


def proto3(text: str) -> str:
    return f'syntax = "proto3"; {text}'


def proto2(text: str) -> str:
    return f'syntax = "proto2"; {text}'


def message(fields: str) -> str:
    return proto3(f"message M {{ {fields} }}")


def message2(fields: str) -> str:
    return proto2(f"message M {{ {fields} }}")


Kinds = tuple[str, ...]
Row = tuple[str, str, Kinds, Kinds]
SCALAR = ("FIELD_SCALAR_KIND_CHANGED",)
KIND = ("FIELD_KIND_CHANGED",)
LABEL = ("FIELD_NUMERIC_LABEL_CHANGED",)

FIELDS: list[Row] = [
    (message("int32 a = 1;"), message("int32 a = 1; string b = 2;"), (), ()),
    (message("int32 a = 1;"), message("int32 renamed = 1;"), (), ()),
    (message("int32 a = 1;"), message("int32 a = 2;"), (), ()),
    (message("int32 a = 1;"), message("int64 a = 1;"), (), ()),
    (message("int32 a = 1;"), message("uint64 a = 1;"), (), ()),
    (message("int32 a = 1;"), message("bool a = 1;"), (), ()),
    (message("int32 a = 1;"), message("enum E { X = 0; } E a = 1;"), (), ()),
    (message("int32 a = 1;"), message("sint32 a = 1;"), SCALAR, SCALAR),
    (message("sint32 a = 1;"), message("sint64 a = 1;"), (), ()),
    (message("fixed32 a = 1;"), message("sfixed32 a = 1;"), (), ()),
    (message("fixed64 a = 1;"), message("sfixed64 a = 1;"), (), ()),
    (message("fixed32 a = 1;"), message("fixed64 a = 1;"), SCALAR, SCALAR),
    (message("fixed32 a = 1;"), message("float a = 1;"), SCALAR, SCALAR),
    (message("float a = 1;"), message("double a = 1;"), SCALAR, SCALAR),
    (message("string a = 1;"), message("bytes a = 1;"), (), ()),
    (message("string a = 1;"), message("int32 a = 1;"), SCALAR, SCALAR),
    (message("string a = 1;"), message("message N { } N a = 1;"), (*KIND,), (*KIND, "MESSAGE_REMOVED")),
    (message("optional int32 a = 1;"), message("repeated int32 a = 1;"), LABEL, LABEL),
    (message("int32 a = 1;"), message("optional int32 a = 1;"), (), ()),
    (message("optional string a = 1;"), message("repeated string a = 1;"), (), ()),
    (message("optional bytes a = 1;"), message("repeated bytes a = 1;"), (), ()),
    (message("message N { } optional N a = 1;"), message("message N { } repeated N a = 1;"), (), ()),
    (message2("optional int32 a = 1;"), message2("required int32 a = 1;"), LABEL, LABEL),
    (message2("optional int32 a = 1;"), message2("optional int32 a = 1; required int32 b = 2;"),
     ("REQUIRED_FIELD_ADDED",), ("REQUIRED_FIELD_REMOVED",)),
    (message2("optional group G = 1 { optional int32 x = 1; }"), message2("optional int32 g = 1;"),
     (*KIND, "MESSAGE_REMOVED"), KIND),
    (message("map<string, int32> a = 1;"), message("map<string, int64> a = 1;"), (), ()),
    (message("map<string, int32> a = 1;"), message("map<string, string> a = 1;"), SCALAR, SCALAR),
    (message("map<string, int32> a = 1;"), message("map<int32, int32> a = 1;"), SCALAR, SCALAR),
    (message("map<string, int32> a = 1;"), message("string a = 1;"), KIND, KIND),
    (message("map<string, int32> a = 1;"), message(""), (), ()),
    (message("int32 a = 1; string b = 2;"), message("reserved 2; int32 a = 1;"), (), ()),
    (message("reserved 2; int32 a = 1;"), message("int32 a = 1; bool c = 2;"), (), ()),
    (message("enum E { X = 0; Y = 1; } E a = 1;"), message("enum E { X = 0; } E a = 1;"), (), ()),
    (message("enum E { X = 0; } E a = 1;"), message("enum F { X = 0; } F a = 1;"), (), ()),
    (message("enum E { X = 0; } E a = 1;"), message("enum E { X = 0; } string a = 1;"), SCALAR, SCALAR),
    (message("repeated int32 a = 1;"), message("repeated int32 a = 1 [packed = false];"), (), ()),
    (message("map<string, N> a = 1; message N { int32 x = 1; }"),
     message("map<string, N> a = 1; message N { string x = 1; }"), SCALAR, SCALAR),
]  # fmt: skip

NAMES: list[Row] = [
    (proto3("package a; message M { }"), proto3("package b; message M { }"), ("PACKAGE_CHANGED",),
     ("PACKAGE_CHANGED",)),
    (proto3("message M { }"), proto3("message M { } message N { }"), (), ("MESSAGE_REMOVED",)),
    (proto3("message M { } message N { }"), proto3("message N { } message M { }"), (), ()),
    (proto3("message M { }"), proto3("message M { message I { } }"), (), ("MESSAGE_REMOVED",)),
    (proto3("message M { message I { int32 a = 1; } }"), proto3("message M { message I { string a = 1; } }"), SCALAR,
     SCALAR),
    (proto3("message M { N a = 1; } message N { }"), proto3("message M { O a = 1; } message O { } message N { }"),
     ("FIELD_NAMED_TYPE_CHANGED",), ("FIELD_NAMED_TYPE_CHANGED", "MESSAGE_REMOVED")),
    (message("message N { } N a = 1;"), message("message N { } M.N a = 1;"), (), ()),
    (proto3("package p; message M { message N { } N a = 1; }"),
     proto3("package p; message M { message N { } .p.M.N a = 1; }"), (), ()),
    (proto3("message M { M m = 1; int32 v = 2; }"), proto3("message M { M m = 1; string v = 2; }"), SCALAR, SCALAR),
    (proto3("message M { } enum E { A = 0; }"), proto3("message M { }"), (), ()),
    (proto3("message M { } enum E { A = 0; }"), proto3("message M { } enum E { B = 0; C = 1; }"), (), ()),
    (proto3("message M { } service S { rpc R (M) returns (M); }"), proto3("message M { }"), (), ()),
]  # fmt: skip

ONEOFS: list[Row] = [
    (message("oneof o { int32 a = 1; }"), message("oneof o { int32 a = 1; int32 b = 2; }"), (),
     ("ONEOF_FIELD_REMOVED",)),
    (message("int32 a = 1;"), message("oneof o { int32 a = 1; int32 b = 2; }"), (), ("ONEOF_FIELD_REMOVED",)),
    (message("int32 a = 1; int32 b = 2;"), message("oneof o { int32 a = 1; int32 b = 2; }"),
     ("MULTIPLE_FIELDS_MOVED_TO_ONEOF",), ()),
    (message("int32 a = 1; oneof o { int32 b = 2; int32 c = 3; }"),
     message("oneof o { int32 a = 1; int32 b = 2; int32 c = 3; }"), ("FIELD_MOVED_TO_EXISTING_ONEOF",), ()),
    (message("int32 a = 1; oneof o { int32 b = 2; }"), message("oneof renamed { int32 a = 1; int32 b = 2; }"),
     ("FIELD_MOVED_TO_EXISTING_ONEOF",), ()),
    (message("oneof o { int32 a = 1; } oneof p { int32 b = 2; }"), message("oneof o { int32 a = 1; int32 b = 2; }"),
     ("FIELD_MOVED_TO_EXISTING_ONEOF",), ()),
    (message("oneof o { int32 a = 1; int32 b = 2; }"), message("oneof renamed { int32 a = 1; int32 b = 2; }"), (), ()),
    (message("oneof o { int32 a = 1; int32 b = 2; }"), message("oneof renamed { int32 a = 1; string b = 2; }"), SCALAR,
     SCALAR),
    (message("int32 k = 9; oneof o { int32 a = 1; int32 b = 2; }"), message("int32 k = 9;"), (), ()),
    (message("optional int32 a = 1; optional int32 b = 2;"), message("optional int32 a = 1;"), (), ()),
    (message("oneof o { int32 a = 1; int32 b = 2; }"), message("oneof o { int32 a = 1; } int32 b = 2;"),
     (), ("FIELD_MOVED_TO_EXISTING_ONEOF",)),
    (message("oneof o { int32 a = 1; int32 b = 2; }"), message("oneof o { int32 a = 1; } oneof p { int32 b = 2; }"),
     (), ("FIELD_MOVED_TO_EXISTING_ONEOF",)),
]  # fmt: skip

EDITIONS: list[Row] = [
    ('edition = "2023"; message M { int32 a = 1; }', 'edition = "2023"; message M { string a = 1; }', SCALAR, SCALAR),
    (proto3("message M { int32 a = 1; }"), 'edition = "2023"; message M { int32 a = 1; }', (), ()),
]


def kinds(reader: Schema, writer: Schema) -> Kinds:
    return tuple(found.kind for found in differences(reader, writer))


@pytest.mark.parametrize(("old", "new", "backward", "forward"), [*FIELDS, *NAMES, *ONEOFS, *EDITIONS])
def test_verdicts(old: str, new: str, backward: Kinds, forward: Kinds) -> None:
    before, after = parse(SchemaType.PROTOBUF, old), parse(SchemaType.PROTOBUF, new)
    assert kinds(after, before) == backward
    assert kinds(before, after) == forward
    assert kinds(before, before) == kinds(after, after) == ()
    assert kinds(parse(SchemaType.PROTOBUF, serialized(after)), before) == backward


def home(kind: str, package: str = "home") -> str:
    return proto3(f"package {package}; message Outer {{ message Home {{ {kind} id = 1; Home next = 2; }} }}")


USER = proto3('import "home.proto"; message M { home.Outer.Home home = 1; }')
IMPORTED = ("FIELD_SCALAR_KIND_CHANGED", "FIELD_NAMED_TYPE_CHANGED")


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ((USER, {"home.proto": home("int32")}), (USER, {"home.proto": home("int64")}), ()),
        ((USER, {"home.proto": home("int32")}), (USER, {"home.proto": home("string")}), IMPORTED),
        (
            (USER, {"home.proto": home("int32")}),
            (USER.replace("home.Outer", "away.Outer"), {"home.proto": home("int32", "away")}),
            (),
        ),
        (
            (USER, {"home.proto": home("int32")}),
            (USER.replace("home.Outer", "away.Outer"), {"home.proto": home("string", "away")}),
            IMPORTED,
        ),
    ],
)
def test_messages_of_imported_schemas_are_compared(
    old: tuple[str, Mapping[str, str]], new: tuple[str, Mapping[str, str]], found: Kinds
) -> None:
    before, after = parse(SchemaType.PROTOBUF, *old), parse(SchemaType.PROTOBUF, *new)
    assert kinds(after, before) == found
    assert kinds(before, after) == found


def test_the_sentence_names_path_and_schemas() -> None:
    old, new = (parse(SchemaType.PROTOBUF, message(f"oneof o {{ {kind} a = 1; }}")) for kind in ("int32", "string"))
    assert incompatibilities(new, old, reader_is="new", writer_is="old") == [
        '{errorType:"FIELD_SCALAR_KIND_CHANGED", description:"The kind of a SCALAR field at path '
        "'#/M/o/1' in the new schema does not match its kind in the old schema\"}"
    ]
