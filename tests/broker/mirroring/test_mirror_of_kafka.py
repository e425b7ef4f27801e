"""Apache Kafka as the source, and brokers that are killed on both sides."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place

from benchmarks.clusters import KafkaCluster, SkylogCluster, create_topic
from skylog.client import Connection
from skylog.client.mirrors import MirrorAdmin, MirrorDescription
from skylog.errors import SkylogError
from skylog.records import BatchHeader, iterate_batches
from skylog.testing import wait_until
from tests.proof import in_proof, proof
from tests.spark.peers.jars import NoJarsError, broker_jars

from ..raw import RawClient

PATIENCE_S = 120.0


@pytest.fixture
def kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaCluster]:
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)  # the server chooses a garbage collector itself
    try:
        jars = broker_jars()
    except NoJarsError as error:
        pytest.skip(str(error))
    (tmp_path / "kafka").mkdir()
    with KafkaCluster(tmp_path / "kafka", jars, 1) as cluster:
        yield cluster


@pytest.fixture
def skylog(tmp_path: Path) -> Iterator[SkylogCluster]:
    (tmp_path / "skylog").mkdir()
    with SkylogCluster(tmp_path / "skylog", 1) as cluster:
        yield cluster


def produce(cluster: KafkaCluster, topic: str, values: range, transactional_id: str | None = None) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 5, "compression.type": "zstd"}
    if transactional_id is None:
        producer = Producer({**settings, "enable.idempotence": True})
    else:
        producer = Producer({**settings, "transactional.id": transactional_id})
        producer.init_transactions(30)
        producer.begin_transaction()
    for value in values:
        producer.produce(topic, str(value).encode(), str(value % 50))
        producer.poll(0)
    producer.flush(60)
    if transactional_id is not None:
        (producer.commit_transaction if values.start % 2 == 0 else producer.abort_transaction)(30)


def batches(port: int, topic: str, partition: int) -> list[bytes]:
    """Return the stored batches, without the leader epoch, which is each cluster's own."""
    found = []
    with RawClient(port) as client:
        offset = client.list_offset(topic, -2, partition=partition).offset
        while data := bytes(client.fetch(topic, offset, partition=partition).records or b""):
            end = offset
            for position, header in iterate_batches(data):
                batch = data[position : position + header.size_bytes]
                found.append(
                    header._replace(partition_leader_epoch=0).pack() + batch[len(BatchHeader.read(batch).pack()) :]
                )
                end = header.end_offset
            assert end > offset
            offset = end
    return found


def caught_up(cluster: SkylogCluster, source_port: int, topic: str, partitions: int) -> None:
    def is_done() -> bool:
        try:
            found: MirrorDescription = MirrorAdmin(Connection(cluster.bootstrap)).describe("m")
            with RawClient(source_port) as client:
                ends = [client.end_offset(topic, index) for index in range(partitions)]
        except (SkylogError, OSError):
            return False
        rows = [each for each in found.partitions if each.topic == topic]
        return len(rows) == partitions and all(
            (each.high_watermark, each.status) == (ends[each.partition], "mirroring") for each in rows
        )

    wait_until(is_done, "the mirror to catch up", PATIENCE_S)


@in_proof
def test_kafka_is_mirrored_byte_for_byte_while_both_sides_are_killed(
    kafka: KafkaCluster, skylog: SkylogCluster
) -> None:
    create_topic(kafka, "t", 3)
    produce(kafka, "t", range(1000))
    MirrorAdmin(Connection(skylog.bootstrap)).create("m", kafka.bootstrap, ["t"], ["*"])
    order = random.Random(7)
    for number in range(proof(6, 2)):
        produce(kafka, "t", range(1000 * number, 1000 * number + 1000))
        produce(kafka, "t", range(number, number + 50), transactional_id="x")
        victim = order.choice((kafka, skylog))
        victim.kill(1)
        victim.start(1)
        wait_until(lambda: _answers(kafka) and _answers(skylog), "the brokers", PATIENCE_S)
    reader = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g", "enable.auto.commit": False})
    reader.commit(offsets=[Place("t", 1, 123)], asynchronous=False)
    caught_up(skylog, kafka.ports[1], "t", 3)
    for partition in range(3):
        assert batches(skylog.ports[1], "t", partition) == batches(kafka.ports[1], "t", partition)
    other = Consumer({"bootstrap.servers": skylog.bootstrap, "group.id": "g", "enable.auto.commit": False})
    wait_until(lambda: other.committed([Place("t", 1)], 10)[0].offset == 123, "the offset of the group", PATIENCE_S)
    for cluster in (kafka, skylog):
        assert _committed_values(cluster) == _committed_values(kafka)
    reader.close()
    other.close()


def _answers(cluster: KafkaCluster | SkylogCluster) -> bool:
    try:
        with RawClient(cluster.ports[1]) as client:
            return not client.list_offset("t", -1).error_code or cluster.name == "skylog"
    except Exception:
        return False


def _committed_values(cluster: KafkaCluster | SkylogCluster) -> list[tuple[int | None, int | None, bytes | None]]:
    """Return what a read_committed consumer gets: partition, offset and value."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "r", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    consumer.assign([Place("t", index, 0) for index in range(3)])
    found, ended = [], 0
    while ended < 3:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is not None:
            ended += 1
        else:
            found.append((message.partition(), message.offset(), message.value()))
    consumer.close()
    return sorted(found, key=str)
