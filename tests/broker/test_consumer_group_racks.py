"""Racks in the consumer protocol: consumers get the partitions that have a replica in their rack."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from skylog.broker import Broker

from .local_cluster import LocalCluster
from .process import until

RACKS = {1: "east", 2: "west"}
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "2",
    "min.insync.replicas": "1",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    racks = {node_id: {"broker.rack": rack} for node_id, rack in RACKS.items()}
    with LocalCluster(tmp_path, 2, SETTINGS, racks) as cluster:
        cluster.create("t", [1], [1], [2], [2])
        yield cluster


def member(cluster: LocalCluster, rack: str, assignor: str, group: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in cluster.ports.values()),
            "group.id": group,
            "group.protocol": "consumer",
            "group.remote.assignor": assignor,
            "client.rack": rack,
            "log_level": 0,
        }
    )
    consumer.subscribe(["t"])
    return consumer


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_librdkafka_gets_the_partitions_of_its_rack(cluster: LocalCluster, assignor: str) -> None:
    with ExitStack() as stack:
        group = str(uuid.uuid4())
        west, east = (stack.enter_context(closing(member(cluster, rack, assignor, group))) for rack in ("west", "east"))

        def assigned() -> list[set[int]]:
            for consumer in (west, east):
                consumer.poll(0.05)
            return [{each.partition for each in consumer.assignment()} for consumer in (west, east)]

        until(lambda: assigned() == [{2, 3}, {0, 1}], "each to have the partitions of its rack")


def test_a_broker_that_is_away_keeps_its_rack(cluster: LocalCluster) -> None:
    def racks(broker: Broker) -> dict[int, str]:
        return broker.coordinator.racks

    assert cluster.look(1, racks) == RACKS
    cluster.stop(2)
    until(lambda: 2 not in cluster.look(1, lambda broker: broker.metadata.image.brokers), "broker 2 to be away")
    assert cluster.look(1, racks) == RACKS
