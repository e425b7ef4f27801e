"""Counting: which records are visits, and their organisation and day."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from skylog.events.envelope import Envelope, fired_event
from skylog.pipeline import events as parsed
from skylog.pipeline import unparsed
from skylog.pipeline.jobs.visits import ANY_EVENT, ORGANISATION_FIELDS, PAGE_VIEW, visits
from skylog.pipeline.jobs.visits.counting import NO_DAY, NO_EVENT, NO_ORGANISATION, schema_of, tally

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
SCHEMA = schema_of(ORGANISATION_FIELDS)
A_VIEW = '{"event": "page.view", "attributes": {"org_id": "acme"}}'


def event(attributes: dict[str, Any], name: str = PAGE_VIEW) -> bytes:
    return Envelope("site", "web-1").seal(fired_event(name, 7, attributes, 0)).value


def records(spark: SparkSession, *values: bytes | str | None, at: datetime = NOON) -> DataFrame:
    rows = [
        (None if value is None else bytearray(value.encode() if isinstance(value, str) else value), at)
        for value in values
    ]
    return spark.createDataFrame(rows, "value binary, timestamp timestamp")


def counted(frame: DataFrame) -> dict[tuple[str, date], int]:
    return {(row.organisation, row.day): row.visits for row in frame.collect()}


def test_visits_are_counted_by_organisation_and_day(spark: SparkSession) -> None:
    first = records(spark, event({"org_id": "acme"}), event({"org_id": 7}), event({"org_id": "acme", "page": "/"}))
    second = records(spark, event({"organisation": "acme"}), at=datetime(2024, 5, 2, tzinfo=UTC))
    others = records(spark, event({"org_id": "acme"}, "page.share"))
    frame = visits(first.unionByName(second).unionByName(others))
    assert frame.columns == ["organisation", "day", "visits"]
    assert counted(frame) == {("acme", date(2024, 5, 1)): 2, ("7", date(2024, 5, 1)): 1, ("acme", date(2024, 5, 2)): 1}


def test_event_and_field_can_be_chosen(spark: SparkSession) -> None:
    frame = records(
        spark,
        event({"account": {"id": "a"}}, "login"),
        event({"account": {"id": "b"}}, "logout"),
        event({"account": {"id": "a"}}, "login"),
    )
    assert counted(visits(frame, "login", ["attributes.account.id"])) == {("a", NOON.date()): 2}
    assert counted(visits(frame, ANY_EVENT, ["attributes.account.id"])) == {
        ("a", NOON.date()): 2,
        ("b", NOON.date()): 1,
    }
    assert counted(visits(frame, ANY_EVENT, ["application"])) == {("site", NOON.date()): 3}


@pytest.mark.parametrize("zone", ["Pacific/Auckland", "America/Los_Angeles"])
def test_a_day_is_one_of_utc_wherever_the_session_is(spark: SparkSession, zone: str) -> None:
    frame = records(spark, A_VIEW, at=datetime(2024, 5, 1, tzinfo=UTC)).unionByName(
        records(spark, A_VIEW, at=datetime(2024, 5, 1, 23, 59, 59, 999_999, tzinfo=UTC))
    )
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        assert counted(visits(frame)) == {("acme", date(2024, 5, 1)): 2}
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_what_cannot_be_counted_is_told_and_stops_nothing(spark: SparkSession) -> None:
    no_objects = [
        None,
        b"",
        b"\xff\xfe",
        "null",
        "[1]",
        '"x"',
        '{"even',
        "[" * 5000,
        '{"a":' * 5000,
        "{'event': 'page.view'}",
        '{"event": "page.view", "attributes": {"org_id": NaN}}',
        '{"event": "page.view", "attributes": "acme"}',
    ]
    no_events = ['{"attributes": {}}']
    without = ['""', "null", '"a\\u0000b"', '"' + "o" * 256 + '"']
    without_organisation = [f'{{"event": "page.view", "attributes": {{"org_id": {value}}}}}' for value in without]
    without_organisation += ['{"event": "page.view"}']
    events: list[str | bytes] = [
        *no_events,
        *without_organisation,
        '{"event": "page.share"}',
        event({"org_id": "o" * 255}),
    ]
    frame = records(spark, *no_objects, *events)
    rows = tally(parsed(frame, SCHEMA), PAGE_VIEW, ORGANISATION_FIELDS).collect()
    faults = Counter({row.fault: row.visits for row in rows})
    assert faults == {NO_EVENT: len(no_events), NO_ORGANISATION: len(without_organisation), None: 1}
    places = [(None, "t", 0, 0)]
    whole = spark.createDataFrame(places, "key binary, topic string, partition int, offset long").crossJoin(frame)
    assert unparsed(whole, SCHEMA).count() == len(no_objects)


def test_times_that_are_no_dates_are_told_and_the_last_date_is_one(spark: SparkSession) -> None:
    end_us = 253_402_300_800_000_000  # of the year 9999
    times = ", ".join(f"({time_us})" for time_us in (-1, 0, end_us - 1, end_us, 2**62))
    columns = f"CAST('{A_VIEW}' AS BINARY) AS value, TIMESTAMP_MICROS(us) AS timestamp"
    frame = spark.sql(f"SELECT {columns} FROM VALUES {times} AS times(us)")
    rows = tally(parsed(frame, SCHEMA), PAGE_VIEW, ORGANISATION_FIELDS).collect()
    assert {(row.fault, row.day): row.visits for row in rows} == {
        (NO_DAY, None): 3,
        (None, date(1970, 1, 1)): 1,
        (None, date(9999, 12, 31)): 1,
    }
