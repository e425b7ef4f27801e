"""`valueFormat=json`: values become typed columns, and values that do not match are kept as text."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from skylog.spark.reading.json_values import JsonValues
from tests.spark.conftest import Topics

EVENT_TYPE = pa.struct(
    [
        ("user", pa.string()),
        ("visits", pa.int32()),
        ("seconds", pa.float64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("tags", pa.list_(pa.string())),
        ("page", pa.struct([("path", pa.string())])),
    ]
)
SCHEMA = pa.schema([("value", pa.binary()), ("event", EVENT_TYPE), ("_corrupt", pa.string())])
EMPTY = dict.fromkeys(EVENT_TYPE.names)


def parse(*values: bytes | None) -> list[tuple[Any, str | None]]:
    batch = pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], names=["value"])
    rows = JsonValues(SCHEMA).extend(batch)
    rows.validate(full=True)
    return [(row["event"], row["_corrupt"]) for row in rows.to_pylist()]


def test_fields_get_the_types_of_the_schema() -> None:
    text = (
        b'{"user": "u1", "visits": 3, "seconds": 2, "tags": ["a", null], "page": {"path": "/", "query": 1}, "more": 0}'
    )
    assert parse(text) == [
        ({**EMPTY, "user": "u1", "visits": 3, "seconds": 2.0, "tags": ["a", None], "page": {"path": "/"}}, None)
    ]


@pytest.mark.parametrize(
    "value", [b'"2024-05-01T12:00:00Z"', b'"2024-05-01T14:00:00+02:00"', b'"2024-05-01 12:00:00"', b"1714564800000"]
)
def test_times_are_texts_or_milliseconds(value: bytes) -> None:
    [(event, corrupt)] = parse(b'{"at": %s}' % value)
    assert event["at"] == datetime(2024, 5, 1, 12, tzinfo=UTC)
    assert corrupt is None


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"   ",
        b"null",
        b"5",
        b"[1]",
        b"{",
        b'{"user": 1}',
        b'{"visits": "3"}',
        b'{"visits": 1.5}',
        b'{"visits": 99999999999}',
        b'{"at": "yesterday"}',
        b'{"at": 1e300}',
        b'{"at": true}',
        b'{"tags": "a"}',
        b'{"page": []}',
        b'{"user": "a"} {"user": "b"}',
        b"\xff\xfe",
    ],
)
def test_what_does_not_fit_is_kept_as_text_and_disturbs_no_neighbour(text: bytes) -> None:
    before, found, after = parse(b'{"user": "a"}', text, b'{"user": "b"}')
    assert found == (None, text.decode(errors="replace"))
    assert (before, after) == (({**EMPTY, "user": "a"}, None), ({**EMPTY, "user": "b"}, None))


def test_a_row_without_a_value_is_neither_event_nor_corrupt() -> None:
    assert parse(None) == [(None, None)]


def test_spark_sees_typed_columns(topics: Topics, skylog_topic: str) -> None:
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    for value in (b'{"user": "u1", "at": "2024-05-01T12:00:00Z", "n": 1}', b"no event", b'{"user": "u2", "n": 2}'):
        producer.produce(skylog_topic, value)
    producer.flush()
    frame = topics.read(skylog_topic, valueFormat="json", valueSchema="user STRING, at TIMESTAMP, n BIGINT")
    rows = frame.orderBy("offset").select("offset", "event.*", "_corrupt").collect()
    assert [(row.offset, row.user, row.n, row["_corrupt"]) for row in rows] == [
        (0, "u1", 1, None),
        (1, None, None, "no event"),
        (2, "u2", 2, None),
    ]
    assert rows[0]["at"].astimezone(UTC) == datetime(2024, 5, 1, 12, tzinfo=UTC)


def test_a_format_needs_a_schema(topics: Topics, skylog_topic: str) -> None:
    with pytest.raises(Exception, match="set both valueFormat and valueSchema"):
        topics.read(skylog_topic, valueFormat="json")


def test_a_type_that_json_does_not_have_is_refused(topics: Topics, skylog_topic: str) -> None:
    frame = topics.read(skylog_topic, valueFormat="json", valueSchema="price DECIMAL(10, 2)")
    with pytest.raises(Exception, match=r"type decimal.* is not supported for JSON values"):
        frame.count()
