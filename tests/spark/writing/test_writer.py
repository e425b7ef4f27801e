"""`df.write.format("skylog")`: rows arrive unchanged and once, and mistakes are reported."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from skylog.client import Admin
from skylog.spark.errors import OptionError
from skylog.spark.source import SkylogSource
from skylog.testing import BrokerProcess, consume
from tests.present import present

ROWS = "key binary, value binary, headers array<struct<key:string,value:binary>>, partition int"


@pytest.fixture
def topic(skylog_admin: Admin) -> str:
    name = f"written-{uuid.uuid4().hex[:8]}"
    skylog_admin.create_topic(name, 4)
    return name


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    return tmp_path / "staging"


class Sink:
    def __init__(self, spark: SparkSession, broker: BrokerProcess, staging: Path) -> None:
        self.spark, self.bootstrap, self.staging = spark, broker.bootstrap, staging

    def write(self, frame: DataFrame, *, mode: str = "append", **options: Any) -> None:
        writer = frame.write.format("skylog").option("kafka.bootstrap.servers", self.bootstrap)
        writer.option("stagingLocation", str(self.staging)).options(**options).mode(mode).save()


@pytest.fixture
def sink(spark: SparkSession, skylog_broker: BrokerProcess, staging: Path) -> Sink:
    return Sink(spark, skylog_broker, staging)


def messages(bootstrap: str, topic: str) -> list[Any]:
    """All messages as confluent-kafka reads them, by partition and offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.partition.eof": False})
    partitions = [TopicPartition(topic, number, 0) for number in consumer.list_topics(topic).topics[topic].partitions]
    count = sum(consumer.get_watermark_offsets(each)[1] for each in partitions)
    consumer.assign(partitions)
    found = [message for message in consumer.consume(count, 10) if not message.error()] if count else []
    consumer.close()
    return sorted(found, key=lambda message: (message.partition(), message.offset()))


def test_rows_arrive_as_they_are(sink: Sink, topic: str) -> None:
    rows = [
        (b"k1", b"v1", [("h", b"x"), ("none", None)], 3),
        (None, None, None, 0),
        (b"", b"", [], 1),
        (b"k2", bytes(range(256)) * 20, [("ü", b"")], 2),
    ]
    sink.write(sink.spark.createDataFrame(rows, ROWS), topic=topic)
    found = [(m.key(), m.value(), m.headers(), m.partition()) for m in messages(sink.bootstrap, topic)]
    assert found == sorted([(row[0], row[1], row[2] or None, row[3]) for row in rows], key=lambda row: row[3])


def test_a_write_can_be_one_transaction(sink: Sink, topic: str, skylog_admin: Admin) -> None:
    sink.write(sink.spark.range(100).selectExpr("cast(id as string) value"), topic=topic, transactional=True)
    assert sorted(int(message.value or b"") for message in consume(sink.bootstrap, topic)) == [*range(100)]
    ranges = skylog_admin.offset_ranges(skylog_admin.describe_topic(topic).topic_partitions)
    ends = [found.end_offset for found in ranges.values() if found.end_offset]
    assert sum(ends) == 100 + len(ends)  # a marker in each partition that has rows


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_other_clients_read_every_codec(sink: Sink, topic: str, codec: str) -> None:
    frame = sink.spark.range(5000).selectExpr("cast(id as string) key", "repeat(cast(id as string), 10) value")
    sink.write(frame, topic=topic, **{"kafka.compression.type": codec})
    found = {m.key().decode(): m.value().decode() for m in messages(sink.bootstrap, topic)}
    assert found == {str(number): str(number) * 10 for number in range(5000)}


def test_keys_lie_where_other_clients_put_them(sink: Sink, topic: str, skylog_admin: Admin) -> None:
    skylog_admin.create_topic(topic + "-peer", 4)
    peer = Producer({"bootstrap.servers": sink.bootstrap, "partitioner": "murmur2_random"})
    for number in range(50):
        peer.produce(topic + "-peer", b"", str(number).encode())
    peer.flush()
    sink.write(sink.spark.range(50).selectExpr("cast(id as string) key", "'' value"), topic=topic)
    ours = {m.key(): m.partition() for m in messages(sink.bootstrap, topic)}
    theirs = {m.key(): m.partition() for m in messages(sink.bootstrap, topic + "-peer")}
    assert len(ours) == 50
    assert ours == theirs


def test_rows_without_a_key_are_spread(sink: Sink, topic: str) -> None:
    sink.write(sink.spark.range(0, 20_000, 1, 1).selectExpr("repeat('x', 20) value"), topic=topic)
    counts = [0] * 4
    for message in messages(sink.bootstrap, topic):
        counts[message.partition()] += 1
    assert sum(counts) == 20_000
    assert min(counts) > 4000


def test_a_column_names_the_topic_of_each_row_unless_the_option_does(
    sink: Sink, topic: str, skylog_admin: Admin
) -> None:
    other = topic + "-other"
    skylog_admin.create_topic(other, 1)
    frame = sink.spark.createDataFrame([(topic, "a"), (other, "b"), (topic, "c")], "topic string, value string")
    sink.write(frame)
    assert sorted(m.value() for m in messages(sink.bootstrap, topic)) == [b"a", b"c"]
    sink.write(frame, topic=other)
    assert sorted(m.value() for m in messages(sink.bootstrap, other)) == [b"a", b"b", b"b", b"c"]


def test_a_column_of_times_is_kept(sink: Sink, topic: str) -> None:
    time = datetime(2024, 2, 29, 12, 30, 0, 123_000, tzinfo=UTC)
    before_ms = int(datetime.now(UTC).timestamp() * 1000)
    sink.write(sink.spark.createDataFrame([("a", time), ("b", None)], "value string, timestamp timestamp"), topic=topic)
    times = {m.value(): m.timestamp()[1] for m in messages(sink.bootstrap, topic)}
    assert times[b"a"] == int(time.timestamp() * 1000)
    assert times[b"b"] >= before_ms


def test_a_topic_that_is_not_there_is_created_where_the_broker_does_that(sink: Sink) -> None:
    name = f"new-{uuid.uuid4().hex[:8]}"
    sink.write(sink.spark.range(3).selectExpr("cast(id as string) value"), topic=name)
    assert len(messages(sink.bootstrap, name)) == 3


def test_nothing_is_left_of_what_was_staged(sink: Sink, topic: str) -> None:
    sink.write(sink.spark.range(3).selectExpr("cast(id as string) value"), topic=topic)
    assert sink.staging.exists()
    assert not list(sink.staging.iterdir())


def test_a_job_that_fails_writes_nothing(sink: Sink, topic: str) -> None:
    def fail_at_last(partition: int, rows: Iterable[Any]) -> Iterator[Any]:
        yield from rows
        if partition == 3:
            raise RuntimeError("no luck")

    rows = sink.spark.range(0, 1000, 1, 4).selectExpr("cast(id as string) value").rdd
    frame = sink.spark.createDataFrame(rows.mapPartitionsWithIndex(fail_at_last), "value string")
    with pytest.raises(PySparkException, match="no luck"):
        sink.write(frame, topic=topic)
    assert messages(sink.bootstrap, topic) == []
    assert not list(sink.staging.glob("0-3-*"))  # other tasks may have ended after the job, when nothing is cleaned up


def test_a_task_that_is_tried_again_writes_its_rows_once(sink: Sink, topic: str, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()

    def fail_once(partition: int, rows: Iterable[Any]) -> Iterator[Any]:
        yield from rows
        if not (marks / str(partition)).exists():
            (marks / str(partition)).touch()
            raise RuntimeError("the first attempt fails")

    rows = sink.spark.range(0, 1000, 1, 4).selectExpr("cast(id as string) value").rdd
    sink.write(sink.spark.createDataFrame(rows.mapPartitionsWithIndex(fail_once), "value string"), topic=topic)
    assert len(list(marks.iterdir())) == 4
    assert sorted(int(present(m.value)) for m in consume(sink.bootstrap, topic)) == list(range(1000))


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ("'v' value; cast(null as string) topic", {}, "column 'topic' has a null"),
        ("'v' value; 4 partition", {"topic": "TOPIC"}, "column 'partition' has 4; topic 'TOPIC' has partitions 0 to 3"),
        ("'v' value", {"topic": "no good!"}, "cannot write to topic 'no good!'"),
        ("'v' value", {"topic": "t", "mode": "overwrite"}, "a topic is append-only"),
        ("'v' value", {"topic": "t", "stagingLocation": "dbfs:/sink"}, "expected a directory that the driver and all"),
        (
            "repeat('v', 2000) value",
            {"topic": "TOPIC", "kafka.max.request.size": "1000"},
            "raise the option kafka.max.request",
        ),
    ],
)
def test_mistakes_are_reported(sink: Sink, topic: str, rows: str, options: dict[str, str], message: str) -> None:
    frame = sink.spark.range(1).selectExpr(*rows.split("; "))
    with pytest.raises(PySparkException) as raised:
        sink.write(frame, **{key: value.replace("TOPIC", topic) for key, value in options.items()})
    assert message.replace("TOPIC", topic) in str(raised.value)


VALUE = StructField("value", StringType())
PLACES = ArrayType(StringType())


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ([StructField("key", StringType())], {"topic": "t"}, "required column 'value' is missing; columns: key"),
        ([VALUE], {}, "no topic is set"),
        ([StructField("value", LongType())], {"topic": "t"}, "'value' has type bigint; cast it to string or binary"),
        ([VALUE, StructField("partition", LongType())], {"topic": "t"}, "'partition' has type bigint; cast it to int"),
        ([VALUE, StructField("headers", PLACES)], {"topic": "t"}, "column 'headers' has type array<string>"),
        ([VALUE], {"topik": "t"}, "did you mean 'topic'"),
        ([VALUE], {"topic": "t", "kafka.compression.type": "rar"}, "expected one of none, gzip"),
        ([VALUE], {"topic": "t", "kafka.security.protocol": "TLS"}, "expected one of PLAINTEXT, SSL"),
    ],
)
def test_mistakes_are_reported_before_a_task_starts(
    columns: list[StructField], options: dict[str, str], message: str
) -> None:
    source = SkylogSource({"kafka.bootstrap.servers": "127.0.0.1:1", **options})
    with pytest.raises(OptionError) as raised:
        source.writer(StructType(columns), overwrite=False)
    assert message in str(raised.value)
