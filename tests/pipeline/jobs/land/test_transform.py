"""Records into rows: each is an event or has a reason not to be."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from skylog.pipeline.jobs.land import ENVELOPE, event_schema, events_frame, unparsed_frame
from skylog.spark.schema import record_schema

LATE = datetime(2026, 3, 1, 23, 59, 59, 999_000, tzinfo=UTC)


def records(spark: SparkSession, *values: bytes | None, time: datetime = LATE) -> DataFrame:
    rows = [(b"key", value, "views", 0, offset, time, 0) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, record_schema(with_headers=False))


def outcome(frame: DataFrame, ddl: str, event_time: str | None = None) -> dict[int, Any]:
    """By offset: an event's date and hour, or the reason why there is none. Every record once."""
    schema = event_schema(ddl)
    events = events_frame(frame, schema, event_time).collect()
    unparsed = unparsed_frame(frame, schema, event_time).collect()
    assert sorted(row._offset for row in [*events, *unparsed]) == list(range(frame.count()))
    found: dict[int, Any] = {row._offset: (row.event_date, row.event_hour) for row in events}
    return found | {row._offset: row.reason for row in unparsed}


def test_an_event_has_its_fields_and_where_it_came_from(spark: SparkSession) -> None:
    value = b'{"id": 7, "event": "view", "user": {"id": 3}, "attributes": {"a": [1]}, "unknown": 1}'
    (row,) = events_frame(records(spark, value), event_schema(ENVELOPE)).collect()
    assert (row.id, row.event, row.user.id, row.attributes, row.server) == ("7", "view", "3", '{"a":[1]}', None)
    assert (row._table, row._partition, row._offset, row._key) == ("views", 0, 0, b"key")
    assert row._size_bytes == len(value) + 3
    assert (row.event_date, row.event_hour) == (date(2026, 3, 1), 23)


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Auckland"])
def test_dates_and_hours_are_those_of_utc_wherever_the_job_runs(spark: SparkSession, zone: str) -> None:
    frame = records(spark, b"{}")
    before = datetime(1969, 12, 31, 23, 30, tzinfo=UTC)
    old = records(spark, b"{}", time=before)
    usual = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        assert outcome(frame, "id STRING") == {0: (date(2026, 3, 1), 23)}
        assert outcome(old, "id STRING") == {0: (date(1969, 12, 31), 23)}
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(usual))


def test_what_is_no_event_has_a_reason(spark: SparkSession) -> None:
    bad = {
        None: "no value",
        b"": "not a JSON object",
        b"null": "not a JSON object",
        b'[{"n": 1}]': "not a JSON object",
        b'{"n": 1} junk': "not a JSON object",
        b'{"s": "\xff"}': "not UTF-8",
        b'{"n": }': "not JSON of the schema",
        b"{'n': 1}": "not JSON of the schema",
        b'{"n": 1.5}': "not JSON of the schema",
        b'{"n": 3000000000}': "not JSON of the schema",
        b'{"n": "one"}': "not JSON of the schema",
        b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}": "not JSON of the schema",
    }
    found = outcome(records(spark, *bad, b' \n{"n": 1}\t'), "n INT, s STRING, a STRING")
    assert [found[number] for number in range(len(bad))] == list(bad.values())
    assert found[len(bad)] == (date(2026, 3, 1), 23)


@pytest.mark.parametrize(
    ("kind", "good", "none"),
    [
        ("DOUBLE", [b"1767225600.5"], [b"1e300", b"-1e300", b"1e15"]),
        ("BIGINT", [b"1767225600500"], [b"9223372036854775807", b"-9223372036854775808"]),
        ("TIMESTAMP", [b'"2026-01-01T01:00:00.5+01:00"', b'"2026-01-01T00:00:00Z"'], []),
        ("STRING", [b'"2026-01-01T00:00:00.5Z"'], [b'"soon"', b'""']),
    ],
)
def test_a_field_can_say_when_it_happened_and_one_that_cannot_be_stops_nothing(
    spark: SparkSession, kind: str, good: list[bytes], none: list[bytes]
) -> None:
    values = [b'{"at": %s}' % value for value in [*good, *none, b"null"]]
    found = outcome(records(spark, *values), f"at {kind}", "at")
    assert [found[number] for number in range(len(good))] == [(date(2026, 1, 1), 0)] * len(good)
    assert {found[number] for number in range(len(good), len(values))} == {"no time in at"}
