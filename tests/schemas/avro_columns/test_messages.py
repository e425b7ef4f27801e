"""The columns have what fastavro reads, and messages that are none are left out with a reason."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skylog.schemas.avro_columns import MessageDecoder, Shape, ShapeError, parse_writer, shape_of_versions
from skylog.schemas.framing import frame
from skylog.schemas.registry_client import SchemaNotFoundError
from tests.proof import proof
from tests.schemas.avro_columns.random_schemas import Kind, records

SLOW = settings(max_examples=proof(400, 25), deadline=None, suppress_health_check=list(HealthCheck))


def encoded(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def decoder(schemas: dict[int, Any], shape: Shape | None = None) -> MessageDecoder:
    found = {schema_id: parse_writer(json.dumps(schema)) for schema_id, schema in schemas.items()}

    def find(schema_id: int) -> Any:
        if schema_id not in found:
            raise SchemaNotFoundError("no such schema")
        return found[schema_id]

    return MessageDecoder(shape or shape_of_versions(found.values()), find)


def rows(decoder: MessageDecoder, values: Iterable[bytes | None]) -> tuple[list[Any], list[str | None]]:
    events, reasons = decoder.decode(pa.array(list(values), pa.binary()))
    events.validate(full=True)
    return events.to_pylist(), reasons.to_pylist()


@SLOW
@given(st.data())
def test_columns_have_what_fastavro_reads(data: st.DataObject) -> None:
    kind: Kind = data.draw(records())
    values = data.draw(st.lists(kind.values, max_size=8))
    payloads = [encoded(kind.schema, value) for value in values]
    parsed = fastavro.parse_schema(kind.schema)
    expected = [kind.column(fastavro.schemaless_reader(io.BytesIO(each), parsed, None)) for each in payloads]
    found, reasons = rows(decoder({1: kind.schema}), (frame(1, each) for each in payloads))
    assert found == expected
    assert reasons == [None] * len(values)


@SLOW
@given(st.data())
def test_damaged_messages_never_disturb_their_neighbours(data: st.DataObject) -> None:
    kind: Kind = data.draw(records())
    good = [frame(1, encoded(kind.schema, value)) for value in data.draw(st.lists(kind.values, min_size=1, max_size=4))]
    damaged = data.draw(st.lists(st.binary(max_size=20).map(lambda raw: frame(1, raw)), min_size=1, max_size=4))
    mixed = [each for pair in zip(good, damaged, strict=False) for each in pair] + good[len(damaged) :]
    found, reasons = rows(decoder({1: kind.schema}), mixed)
    alone, _ = rows(decoder({1: kind.schema}), good)
    at = [mixed.index(each) for each in good]
    assert [found[row] for row in at] == alone
    assert all((event is None) == (reason is not None) for event, reason in zip(found, reasons, strict=True))


V1 = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "note", "type": "string"},
        {"name": "gone", "type": {"type": "array", "items": "string"}},
    ],
}
V2 = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "id", "type": "long"},
        {"name": "price", "type": "double", "default": 1.5},
        {"name": "tags", "type": {"type": "map", "values": "int"}, "default": {"a": 1}},
        {"name": "day", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 86_400_000},
        {
            "name": "sum",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1},
            "default": "\u0019",
        },
    ],
}


def test_messages_of_an_older_version_get_the_defaults_and_wider_types() -> None:
    shape = shape_of_versions([parse_writer(json.dumps(V2))])
    value = frame(1, encoded(V1, {"id": 7, "note": "x", "gone": ["a", "b"]}))
    (found,), _ = rows(decoder({1: V1}, shape), [value])
    reader = fastavro.parse_schema(V2)
    expected: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), fastavro.parse_schema(V1), reader)
    # fastavro does not apply logical types to defaults
    assert found == {**expected, "tags": [("a", 1)], "sum": Decimal("2.5"), "day": datetime(1970, 1, 2, tzinfo=UTC)}


def test_all_versions_give_one_set_of_columns() -> None:
    first = frame(1, encoded(V1, {"id": 7, "note": "x", "gone": ["a"]}))
    second = frame(2, encoded(V2, {"id": 2**40, "note": None, "price": 2.0, "tags": {}, "day": 0, "sum": Decimal(3)}))
    found, reasons = rows(decoder({1: V1, 2: V2}), [second, first, None])
    assert list(found[0]) == ["id", "note", "gone", "price", "tags", "day", "sum"]
    assert [found[0]["id"], found[1]["id"], found[2]] == [2**40, 7, None]
    assert [found[0]["gone"], found[1]["gone"], found[1]["price"]] == [None, ["a"], 1.5]
    assert reasons == [None] * 3


def test_types_that_no_column_holds_are_refused_with_the_field() -> None:
    other = {**V1, "fields": [{"name": "id", "type": "string"}]}
    with pytest.raises(ShapeError, match=r"field 'id' is int32 in one schema and string in another.*valueSubject"):
        shape_of_versions([parse_writer(json.dumps(V1)), parse_writer(json.dumps(other))])


def test_a_record_that_contains_itself_is_refused_as_a_column_and_skipped_otherwise() -> None:
    tree = {
        "type": "record",
        "name": "Tree",
        "fields": [
            {"name": "left", "type": ["null", "Tree"]},
            {"name": "size", "type": "int"},
        ],
    }
    with pytest.raises(ShapeError, match=r"record Tree contains itself.*valueSchema"):
        shape_of_versions([parse_writer(json.dumps(tree))])
    deep: dict[str, Any] = {"left": None, "size": 1}
    for size in range(2, 200):
        deep = {"left": deep, "size": size}
    values = [frame(1, encoded(tree, each)) for each in ({"left": None, "size": 5}, deep)]
    shape = Shape.of_arrow(pa.struct([("size", pa.int32())]))
    assert rows(decoder({1: tree}, shape), values)[0] == [{"size": 5}, {"size": 199}]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "the value does not begin with the id of a schema"),
        (b'{"id": 1}', "the value does not begin with the id of a schema"),
        (frame(9, b"\x02"), "schema 9 is not in the registry"),
        (frame(1, b""), "the bytes do not match schema 1"),
        (frame(1, b"\x02\x02\xff\x00"), "the bytes do not match schema 1"),  # not UTF-8
        (frame(1, b"\x02\x04a"), "the bytes do not match schema 1"),
        (frame(1, b"\x80" * 20), "the bytes do not match schema 1"),
        (frame(1, b"\x02\x00" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"), "the bytes do not match schema 1"),
        (frame(3, b"\x02a"), "schema 3: field 'id' is string, which its column, int32, cannot hold"),
    ],
)
def test_what_is_no_message_is_null_with_the_reason(value: bytes, reason: str) -> None:
    good = frame(1, encoded(V1, {"id": 1, "note": "ok", "gone": []}))
    text = {"type": "record", "name": "shop.Order", "fields": [{"name": "id", "type": "string"}]}
    shape = shape_of_versions([parse_writer(json.dumps(V1))])
    found, reasons = rows(decoder({1: V1, 3: text}, shape), [good, value, good])
    assert [each and each["id"] for each in found] == [1, None, 1]
    assert reasons == [None, reason, None]


def test_bytes_after_a_message_are_ignored_as_other_deserializers_do() -> None:
    good = frame(1, encoded(V1, {"id": 1, "note": "ok", "gone": []}))
    assert rows(decoder({1: V1}), [good + b"more", good])[1] == [None, None]


def test_long_arrays_and_long_decimals_are_decoded_too() -> None:
    schema = {
        "type": "record",
        "name": "Long",
        "fields": [
            {"name": "items", "type": {"type": "array", "items": ["null", "long", "string"]}},
            {"name": "sum", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}},
            {"name": "empty", "type": {"type": "array", "items": "null"}},
        ],
    }
    short = {"items": [1], "sum": Decimal("1.00"), "empty": []}
    long = {"items": [*range(3000), "x", None], "sum": Decimal("-1.25"), "empty": [None] * 40}
    padded = encoded(schema, short).replace(b"\x02\x64", bytes([40]) + b"\x00" * 19 + b"\x64")  # 1.00 in twenty bytes
    found, reasons = rows(
        decoder({1: schema}), [frame(1, encoded(schema, each)) for each in (short, long)] + [frame(1, padded)]
    )
    assert reasons == [None] * 3
    assert found[0] == found[2] == {**short, "items": [{"member0": 1, "member1": None}]}
    assert [each and (each["member0"], each["member1"]) for each in found[1]["items"][2998:]] == [
        (2998, None),
        (2999, None),
        (None, "x"),
        None,
    ]
    assert (found[1]["sum"], found[1]["empty"]) == (Decimal("-1.25"), [None] * 40)
