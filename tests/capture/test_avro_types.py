"""PostgreSQL's text as Avro, read again by fastavro."""

from __future__ import annotations

import io
import json
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.capture.avro_rows import AvroRows
from skylog.capture.avro_schemas import avro_name, envelope_schema, key_schema, row_schema
from skylog.capture.avro_types import avro_type, encoded_long
from skylog.capture.pgoutput import UNCHANGED, Column, Value
from skylog.capture.table import CaptureError

NUMERIC_10_2 = (10 << 16 | 2) + 4
NUMERIC_3_5 = (3 << 16 | 5) + 4
NUMERIC_5_MINUS_2 = (5 << 16 | 0x7FE) + 4


def decoded(schema: Any, data: bytes) -> Any:
    file = io.BytesIO(data)
    found = fastavro.schemaless_reader(file, fastavro.parse_schema(schema), None)
    assert file.read() == b""
    return found


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_long_is_read_as_it_was(number: int) -> None:
    assert decoded("long", encoded_long(number)) == number


@pytest.mark.parametrize(
    ("oid", "modifier", "text", "value"),
    [
        (16, -1, "t", True),
        (16, -1, "f", False),
        (17, -1, "\\x00ff", b"\0\xff"),
        (20, -1, "-9223372036854775808", -(2**63)),
        (21, -1, "-7", -7),
        (23, -1, "2147483647", 2**31 - 1),
        (700, -1, "0.1", struct.unpack("f", struct.pack("f", 0.1))[0]),
        (701, -1, "-Infinity", float("-inf")),
        (25, -1, "ü\n", "ü\n"),
        (3802, -1, '{"x": 1}', '{"x": 1}'),
        (1007, -1, "{1,2}", "{1,2}"),
        (1700, -1, "1.50", "1.50"),
        (1700, NUMERIC_10_2, "-0.05", Decimal("-0.05")),
        (1700, NUMERIC_10_2, "99999999.99", Decimal("99999999.99")),
        (1700, NUMERIC_3_5, "0.00123", "0.00123"),
        (1700, NUMERIC_5_MINUS_2, "12300", "12300"),
        (1082, -1, "1969-12-31", date(1969, 12, 31)),
        (1114, -1, "2024-05-01 14:00:00.000005", datetime(2024, 5, 1, 14, 0, 0, 5, UTC)),
        (1184, -1, "1950-01-01 00:00:00.5+00", datetime(1950, 1, 1, 0, 0, 0, 500_000, UTC)),
        (2950, -1, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
    ],
)
def test_a_value_keeps_its_meaning(oid: int, modifier: int, text: str, value: Any) -> None:
    kind = avro_type(Column("a", oid, False, modifier))
    assert decoded(kind.schema, kind.encode(text.encode()) or b"") == value


@pytest.mark.parametrize(
    ("oid", "text", "number"),
    [
        (1082, "infinity", 2**31 - 1),
        (1082, "-infinity", -(2**31)),
        (1082, "4714-11-24 BC", -2_440_588),  # day 0 of the Julian period
        (1082, "10000-01-01", 2_932_897),
        (1114, "infinity", 2**63 - 1),
        (1184, "-infinity", -(2**63)),
        (1114, "0001-12-31 23:59:59.999999 BC", -62_135_596_800_000_001),
        (1184, "10000-01-01 00:00:00.25+00", 253_402_300_800_250_000),
        (1184, "0044-03-15 12:00:00+00 BC", -63_517_780_800_000_000),
        (1114, "294276-12-31 23:59:59", 2**63 - 1),
    ],
)
def test_times_that_python_does_not_have_are_numbers_all_the_same(oid: int, text: str, number: int) -> None:
    assert decoded("long", avro_type(Column("a", oid, False)).encode(text.encode()) or b"") == number


COLUMNS = (Column("id", 23, True), Column("1 %", 25, False), Column("price", 1700, False, NUMERIC_10_2))


def rows(key_prefix: bytes = b"", row_prefix: bytes = b"") -> AvroRows:
    return AvroRows(COLUMNS, ["id"], key_prefix, row_prefix, b"")


@pytest.mark.parametrize(
    ("values", "row"),
    [
        ([b"7", b"x", b"1.50"], {"id": 7, "_1__": "x", "price": Decimal("1.50")}),
        ([b"7", None, None], {"id": 7, "_1__": None, "price": None}),
        ([b"7", UNCHANGED, b"NaN"], {"id": 7, "_1__": "__debezium_unavailable_value", "price": None}),
    ],
)
def test_rows_and_keys_are_read_with_their_schemas(values: list[Value], row: dict[str, Any]) -> None:
    assert decoded(json.loads(row_schema("p.s.t", COLUMNS, ["id"])), rows().row(values)) == row
    assert decoded(json.loads(key_schema("p.s.t", COLUMNS, ["id"])), rows().key(values)) == {"id": 7}


def test_schemas_have_debeziums_names() -> None:
    envelope = fastavro.parse_schema(json.loads(envelope_schema("my-shop.public.t", COLUMNS, ["id"])))
    assert isinstance(envelope, dict)
    assert envelope["name"] == "my_shop.public.t.Envelope"
    assert [field["name"] for field in envelope["fields"]] == ["before", "after", "source", "op", "ts_ms"]
    assert envelope["fields"][1]["type"] == ["null", "my_shop.public.t.Value"]
    key = json.loads(key_schema("my-shop.public.t", COLUMNS, ["id"]))
    assert (key["namespace"], key["name"]) == ("my_shop.public.t", "Key")


def test_columns_with_the_same_name_in_avro_are_an_error_with_the_fix() -> None:
    columns = (Column("id", 23, True), Column("a b", 25, False), Column("a-b", 25, False))
    with pytest.raises(CaptureError, match=r"'a b' and 'a-b' of p.s.t are both a_b in Avro: rename one"):
        row_schema("p.s.t", columns, ["id"])


def test_a_key_that_avro_does_not_have_is_an_error_with_the_fix() -> None:
    with pytest.raises(CaptureError, match=r"column price of a primary key has the value NaN.*--format json"):
        AvroRows(COLUMNS, ["price"], b"", b"", b"").key([b"1", b"x", b"NaN"])


@given(st.text(min_size=1))
def test_every_name_becomes_one_that_avro_allows(name: str) -> None:
    fastavro.parse_schema({"type": "record", "name": avro_name(name), "fields": []})
