"""The parser of events: each record is an event or has a reason not to be, in one way for all jobs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession

from skylog.pipeline import ENVELOPE, SchemaError, events, unparsed
from skylog.pipeline.event_parser import all_fields
from skylog.spark.schema import record_schema

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def records(spark: SparkSession, *values: bytes | None) -> DataFrame:
    rows = [(b"key", value, "views", 0, offset, NOON, 0) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, record_schema(with_headers=False))


def test_an_event_has_its_fields_and_those_of_its_record(spark: SparkSession) -> None:
    value = b'{"id": "a", "event": "view", "timestamp": 1, "user": {"id": 3}, "attributes": {"n": 1, "o": {"x": [1]}}}'
    found = events(records(spark, value))
    assert found.columns == [
        *("id", "event", "user", "attributes", "server", "application"),
        *("key", "topic", "partition", "offset", "timestamp", "record"),
    ]
    (row,) = found.selectExpr("*", "unix_seconds(timestamp) AS seconds").collect()
    assert (row.id, row.event, row.user.id, row.attributes) == ("a", "view", "3", {"n": "1", "o": '{"x":[1]}'})
    assert (row.key, row.topic, row.offset, row.seconds) == (b"key", "views", 0, int(NOON.timestamp()))
    assert row.record.value == value


def test_fields_of_a_schema_hide_those_of_the_record(spark: SparkSession) -> None:
    (row,) = events(records(spark, b'{"key": 7, "offset": "far"}'), "key INT, offset STRING").collect()
    assert (row.key, row.offset, row.record.key, row.record.offset) == (7, "far", b"key", 0)
    with pytest.raises(SchemaError, match="column 'record' is reserved"):
        events(records(spark), "record STRING")
    with pytest.raises(SchemaError, match="schema id STRIN: "):
        events(records(spark), "id STRIN")


def test_every_record_is_an_event_or_unparsed(spark: SparkSession) -> None:
    bad = {
        None: "no value",
        b"[1]": "not a JSON object",
        b"\xff{}": "not UTF-8",
        b'{"timestamp": "never"}': "not JSON of the schema",
        b'{"attributes": 5}': "not JSON of the schema",
        b"{'event': 'x'}": "not JSON of the schema",
    }
    frame = records(spark, *bad, b"{}")
    assert [row.offset for row in events(frame).collect()] == [len(bad)]
    rows = unparsed(frame).orderBy("offset").collect()
    assert [(row.value, row.reason) for row in rows] == list(bad.items())
    assert rows[2].text == "\ufffd{}"
    fields = all_fields(frame, ENVELOPE).where("record.value IS NOT NULL").collect()
    assert len(fields) == len(bad)
    assert all(row.event is None for row in fields)
