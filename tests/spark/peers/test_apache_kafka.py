"""Source and sink on Apache Kafka itself, as on our own broker."""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as LibraryPartition
from pyspark.sql import DataFrame, SparkSession

from skylog.client import Admin, Connection
from skylog.model import TopicPartition
from skylog.testing import consume, produce, wait_until
from tests.proof import in_proof
from tests.spark.chance import chance
from tests.spark.peers.kafka import KafkaProcess
from tests.spark.writing import sink_driver
from tests.spark.writing.sink_process import SinkJob

pytestmark = in_proof
"""tests/spark/reading and tests/spark/writing have the same on our own broker, and test_jvm_connector the format."""

PARTITIONS = 2
DRIVERS = 5  # one is killed; one on a busy machine may give up on a Python worker that takes more than 10 s to start


@pytest.fixture(scope="package")
def kafka_admin(kafka: KafkaProcess) -> Admin:
    return Admin(Connection(kafka.bootstrap))


@pytest.fixture
def topic(kafka_admin: Admin) -> str:
    name = f"topic-{uuid.uuid4().hex[:8]}"
    kafka_admin.create_topic(name, PARTITIONS, 1)
    return name


def read(spark: SparkSession, kafka: KafkaProcess, topic: str, **options: Any) -> DataFrame:
    reader = spark.read.format("skylog").option("kafka.bootstrap.servers", kafka.bootstrap)
    return reader.option("subscribe", topic).options(**options).load()


@pytest.mark.parametrize("codec", ["lz4", "none", "gzip", "snappy", "zstd"])
def test_every_codec_is_read(spark: SparkSession, kafka: KafkaProcess, topic: str, codec: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "compression.type": codec, "linger.ms": 50})
    for number in range(2000):
        producer.produce(topic, b"value %d " % number * 5, b"k%d" % number, number % 2, headers=[("n", b"%d" % number)])
    assert producer.flush(20) == 0
    rows = read(spark, kafka, topic, includeHeaders="true", minPartitions="4").collect()
    found = sorted((row.partition, row.offset, row.key, row.value, row.headers[0].value) for row in rows)
    assert found == [
        (
            partition,
            at,
            b"k%d" % (2 * at + partition),
            b"value %d " % (2 * at + partition) * 5,
            b"%d" % (2 * at + partition),
        )
        for partition in range(2)
        for at in range(1000)
    ]


def test_a_compressed_write_is_read_by_another_client_and_by_us(
    spark: SparkSession, kafka: KafkaProcess, topic: str, tmp_path: Path
) -> None:
    rows = spark.range(3000).selectExpr("cast(id as string) key", "repeat(cast(id as string), 10) value")
    writer = rows.write.format("skylog").option("kafka.bootstrap.servers", kafka.bootstrap).option("topic", topic)
    writer.option("kafka.compression.type", "zstd").option("stagingLocation", str(tmp_path)).mode("append").save()
    expected = {b"%d" % number: b"%d" % number * 10 for number in range(3000)}
    assert {message.key: message.value for message in consume(kafka.bootstrap, topic)} == expected
    assert {bytes(row.key): bytes(row.value) for row in read(spark, kafka, topic).collect()} == expected


def test_committed_transactions_alone_are_read_if_that_is_asked_for(
    spark: SparkSession, kafka: KafkaProcess, topic: str
) -> None:
    """Transactions of three producers, one after the other and interleaved, some of them aborted."""
    producers = [Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"{topic}-{n}"}) for n in range(3)]
    committed = []
    for producer in producers:
        producer.init_transactions(30)
    for round_number in range(4):
        for number, producer in enumerate(producers):
            producer.begin_transaction()
            producer.produce(topic, b"%d-%d" % (round_number, number), partition=0)
            producer.flush(20)
        for number, producer in enumerate(producers):
            if (round_number + number) % 2:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
                committed.append(b"%d-%d" % (round_number, number))
    everything = read(spark, kafka, topic).collect()
    found = read(spark, kafka, topic, **{"kafka.isolation.level": "read_committed"})
    assert len(everything) == 12
    assert sorted(bytes(row.value) for row in found.collect()) == sorted(committed)
    assert found.where("offset >= 5").count() == len(
        [row for row in everything if row.offset >= 5 and bytes(row.value) in committed]
    )


def test_an_open_transaction_ends_a_committed_read(spark: SparkSession, kafka: KafkaProcess, topic: str) -> None:
    produce(kafka.bootstrap, topic, [b"before"], partition=0)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(20)
    produce(kafka.bootstrap, topic, [b"after"], partition=0)
    committed = {"kafka.isolation.level": "read_committed"}
    assert [bytes(row.value) for row in read(spark, kafka, topic, **committed).collect()] == [b"before"]
    producer.commit_transaction(30)
    found = [bytes(row.value) for row in read(spark, kafka, topic, **committed).collect()]
    assert found == [b"before", b"open", b"after"]


def test_a_stream_commits_to_its_group_and_goes_on_from_it(
    spark: SparkSession, kafka: KafkaProcess, topic: str, tmp_path: Path
) -> None:
    produce(kafka.bootstrap, topic, [b"a", b"b"], partition=0)
    reader = spark.readStream.format("skylog").option("kafka.bootstrap.servers", kafka.bootstrap)
    rows = reader.option("subscribe", topic).option("startingOffsets", "earliest").option("groupId", topic).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    writer.trigger(availableNow=True).start().awaitTermination()
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": topic})
    committed = consumer.committed([LibraryPartition(topic, 0)], timeout=10)
    consumer.close()
    assert committed[0].offset == 2
    produce(kafka.bootstrap, topic, [b"c"], partition=0)
    rest = read(spark, kafka, topic, startingOffsets="committed", groupId=topic).collect()
    assert [bytes(row.value) for row in rest] == [b"c"]


def test_a_micro_batch_in_a_transaction_is_written_once_wherever_its_driver_is_killed(
    kafka: KafkaProcess, kafka_admin: Admin, tmp_path: Path
) -> None:
    target = f"topic-{uuid.uuid4().hex[:8]}"
    kafka_admin.create_topic(target, sink_driver.PARTITIONS, 1)
    query = tmp_path / str(uuid.uuid4())
    query.mkdir()
    assert sink_driver.Sink(kafka.bootstrap, target, query).write_under_kills("receive") > 15


@pytest.mark.timeout(600)  # two drivers are started, on whatever else the machine does
def test_a_driver_that_is_killed_copies_every_record_once(
    kafka: KafkaProcess, kafka_admin: Admin, topic: str, tmp_path: Path
) -> None:
    ids = [b"%06d" % number for number in range(60_000)]
    produce(kafka.bootstrap, topic, ids)
    target = topic + "-copy"
    kafka_admin.create_topic(target, PARTITIONS, 1)
    partitions = [TopicPartition(target, number) for number in range(PARTITIONS)]

    def written() -> int:
        return sum(found.end_offset for found in kafka_admin.offset_ranges(partitions).values())

    enough = chance().randrange(1, 30_000)
    status = None
    for _ in range(DRIVERS):
        with SinkJob("copy", kafka.bootstrap, topic, target, tmp_path) as job:
            if written() < enough:
                wait_until(
                    lambda: written() >= enough or not job.is_running, f"{enough} records in {target}", 200
                )  # called at once
                job.kill("all")
                assert written() < len(ids)
            else:
                status = job.wait(200)
        if status == 0:
            break
    assert status == 0
    counts = Counter(message.value for message in consume(kafka.bootstrap, target))
    assert len(counts) == len(ids)
    assert set(counts.values()) == {1}
