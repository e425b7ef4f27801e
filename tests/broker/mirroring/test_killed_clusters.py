"""Two clusters of broker processes, of which one mirrors the other, while their brokers are killed at random.

`test_mirrors_of_clusters` has the short form of each case, on one event loop.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place

from skylog.client import Admin, Connection
from skylog.client.mirrors import MirrorAdmin
from skylog.errors import SkylogError
from skylog.model import TopicPartition
from skylog.testing import BrokerCluster, wait_until
from tests.proof import in_proof

from .test_mirror_of_kafka import PATIENCE_S, batches

PARTITIONS = 3
ROUNDS = 12
AT_ONCE = 500

Sites = tuple[BrokerCluster, BrokerCluster]


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Sites]:
    with BrokerCluster(data_dir=tmp_path / "west") as west, BrokerCluster(data_dir=tmp_path / "east") as east:
        yield west, east


def produce(cluster: BrokerCluster, first: int) -> None:
    """Send numbers, each exactly once, however often brokers die."""
    settings = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 5}
    producer = Producer({**settings, "message.timeout.ms": int(PATIENCE_S * 1000)})
    failures: list[object] = []

    def note(error: object, _: object) -> None:
        if error is not None:
            failures.append(error)

    for number in range(first, first + AT_ONCE):
        producer.produce("t", b"%d" % number, on_delivery=note)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    assert not failures


def is_caught_up(west: BrokerCluster, east: BrokerCluster) -> bool:
    try:
        found = MirrorAdmin(Connection(east.bootstrap)).describe("m")
        ranges = Admin(Connection(west.bootstrap)).offset_ranges([TopicPartition("t", n) for n in range(PARTITIONS)])
    except SkylogError:
        return False
    rows = {TopicPartition(each.topic, each.partition): (each.high_watermark, each.status) for each in found.partitions}
    return rows == {place: (each.end_offset, "mirroring") for place, each in ranges.items()}


def read(cluster: BrokerCluster, count: int) -> list[int]:
    """Read as a member of the group, commit, and leave it."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe(["t"])
    found: list[int] = []
    try:
        while len(found) < count:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"{len(found)} of {count} messages"
            if message.error() is None:
                found.append(int(message.value() or b""))
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def committed(cluster: BrokerCluster) -> list[int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.auto.commit": False})
    try:
        return [each.offset for each in consumer.committed([Place("t", index) for index in range(PARTITIONS)], 30)]
    finally:
        consumer.close()


def private_port(cluster: BrokerCluster, partition: int) -> int:
    return cluster.brokers[cluster.leader_of("t", partition)].port


@in_proof
def test_after_kills_on_both_sides_all_is_the_same_and_a_group_moves_without_gap_or_repetition(sites: Sites) -> None:
    west, east = sites
    Admin(Connection(west.bootstrap)).create_topic("t", PARTITIONS)
    MirrorAdmin(Connection(east.bootstrap)).create("m", west.bootstrap, ["t"], ["g"])
    order = random.Random(20)
    for number in range(ROUNDS):
        cluster = order.choice(sites)
        victim = order.choice(list(cluster.brokers))
        cluster.kill(victim)
        produce(west, number * AT_ONCE)
        cluster.start(victim)
    total = ROUNDS * AT_ONCE
    first = read(west, total // 3)  # the rest is read at the other site
    wait_until(lambda: is_caught_up(west, east), "the mirror to catch up", PATIENCE_S)
    wait_until(lambda: committed(east) == committed(west), "the offsets of the group", PATIENCE_S)
    for partition in range(PARTITIONS):
        wanted = batches(private_port(west, partition), "t", partition)
        assert batches(private_port(east, partition), "t", partition) == wanted
    west.kill()
    MirrorAdmin(Connection(east.bootstrap)).promote("m")
    second = read(east, total - len(first))
    assert sorted(first + second) == list(range(total))
