"""Plain events land without Spark's JVM, in the same columns, each once, in few files."""

from __future__ import annotations

import json
import random
import uuid
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from skylog import Admin, Producer
from skylog.pipeline.jobs.land import ENVELOPE, LandSettings, event_schema, events_frame, land
from skylog.pipeline.jobs.land import job as steps
from skylog.pipeline.jobs.land.direct import OtherRecords, PlainRows
from skylog.pipeline.plain_events import PlainEvents
from skylog.pipeline.table import Table
from skylog.spark.schema import arrow_schema, record_schema
from skylog.testing import BrokerProcess
from tests.pipeline.delta_readers import query

HOUR_MS = 3_600_000
NOON_MS = 1_772_366_400_000  # 2026-03-01T12:00Z
TIMES = ("0001-01-01", "1969-12-31T23:30", "1970-01-01", "2026-03-01T12:59:59.999999", "9999-12-31T23:59:59.999")
PLAIN = b'{"id":"a","event":"view","timestamp":1.5,"user":{"id":3},"attributes":{"page":"/"},"server":"web"}'


@pytest.fixture
def topic(skylog_broker: BrokerProcess) -> str:
    name = f"plain-{uuid.uuid4().hex[:8]}"
    Admin(skylog_broker.bootstrap).create_topic(name, partitions=2, configs={"retention.ms": "-1"})
    return name


def test_rows_are_those_of_the_transform(spark: SparkSession) -> None:
    values = [PLAIN, b"{}", b'{"attributes":1.10}', b"[]", None]
    micros = [(datetime.fromisoformat(each) - datetime(1970, 1, 1)) // timedelta(microseconds=1) for each in TIMES]
    micros += [-62_135_596_800_000_001, 253_402_300_800_000_000]  # outside of the years that have a date
    columns = list(zip(*[(value, at) for at in micros for value in values], strict=True))
    count = len(columns[0])
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([None if number % 3 else b"key" for number in range(count)], pa.binary()),
            pa.array(columns[0], pa.binary()),
            pa.array(["views"] * count),
            pa.array([1] * count, pa.int32()),
            pa.array(range(count), pa.int64()),
            pa.array(columns[1], pa.int64()).view(pa.timestamp("us", tz="UTC")),
            pa.array([0] * count, pa.int32()),
        ],
        schema=arrow_schema(record_schema(with_headers=False)),
    )
    schema = event_schema(ENVELOPE)
    parser = PlainEvents.of(schema)
    assert parser is not None
    records = spark.createDataFrame(pa.Table.from_batches([batch]))
    expected = events_frame(records, schema).orderBy("_offset")
    batches = list(PlainRows(parser, arrow_schema(expected.schema))([batch]))
    found = pa.Table.from_batches(batches).sort_by("_offset")
    others = pa.Table.from_batches(list(OtherRecords(parser)([batch])))
    assert found.num_rows == 2 * len(TIMES) == len(batches) * 2
    assert found.num_rows + others.num_rows == count
    plain = pa.table(expected.where("attributes IS NULL OR attributes NOT LIKE '1.1%'").toArrow())
    assert found.cast(plain.schema).to_pylist() == plain.to_pylist()


def test_events_land_once_whether_they_are_plain_or_not(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    count = 400
    with Producer(skylog_broker.bootstrap) as producer, producer.batch():
        for number in range(count):
            value = {"id": number, "event": "view", "attributes": {"ratio": 0.5} if number % 4 == 1 else {"n": number}}
            text = json.dumps(value).encode() if number % 4 != 2 else b"no event %d" % number
            producer.send(topic, text, partition=number % 2, timestamp_ms=NOON_MS + number)
    for _ in range(2):
        land(spark, skylog_broker.bootstrap, [topic], LandSettings(tmp_path), max_offsets=count // 2, group=None)
    (row,) = query(
        tmp_path / topic, "SELECT count(*), count(DISTINCT id), count(DISTINCT (_partition, _offset)) FROM t"
    )
    assert row == (count * 3 // 4,) * 3
    assert query(tmp_path / topic, "SELECT attributes FROM t WHERE id IN ('1', '3') ORDER BY id") == [
        ('{"ratio":0.5}',),
        ('{"n":3}',),
    ]
    assert query(tmp_path / f"{topic}__unparsed", "SELECT count(DISTINCT text) FROM t") == [(count // 4,)]


def test_plain_events_are_not_parsed_again(
    spark: SparkSession,
    skylog_broker: BrokerProcess,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("rows go through Spark")

    monkeypatch.setattr(steps, "write_files", fail)
    with Producer(skylog_broker.bootstrap) as producer, producer.batch():
        for number in range(100):
            producer.send(topic, PLAIN, partition=number % 2, timestamp_ms=NOON_MS + number % 3 * HOUR_MS)
    land(spark, skylog_broker.bootstrap, [topic], LandSettings(tmp_path), group=None)
    assert [file.rows for file in Table(tmp_path / topic).log().files()] == [34, 33, 33]


def test_events_of_many_hours_in_no_order_have_one_file_for_each(
    spark: SparkSession, skylog_broker: BrokerProcess, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="skylog.pipeline.jobs.land.job")
    hours = [number % 30 for number in range(600)]
    random.Random(7).shuffle(hours)
    value = PLAIN.replace(b"web", b"x" * 8000)  # so that a task has several batches
    with Producer(skylog_broker.bootstrap, config={"compression.type": "none"}) as producer:
        for hour in hours:
            producer.send(topic, value, partition=0, timestamp_ms=NOON_MS + hour * HOUR_MS)
    options = {"kafka.max.partition.fetch.bytes": "65536"}
    land(spark, skylog_broker.bootstrap, [topic], LandSettings(tmp_path), group=None, options=options)
    assert "hours are in no order" in caplog.text
    files = Table(tmp_path / topic).log().files()
    assert sorted(file.rows or 0 for file in files) == [20] * 30
    assert len(list((tmp_path / topic).rglob("*.parquet"))) == 30  # those of the task that gave up are deleted
