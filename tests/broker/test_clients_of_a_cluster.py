"""confluent-kafka with a cluster of broker processes: reading from a follower, and finding a new leader."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from skylog.client import Admin, Connection
from skylog.testing import BrokerCluster, wait_until

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    racks = {node_id: {"broker.rack": f"rack-{node_id}"} for node_id in (1, 2, 3)}
    with BrokerCluster(
        settings={"replica.selector.class": SELECTOR}, broker_settings=racks, session_timeout_ms=1000
    ) as cluster:
        yield cluster


class Reader:
    """A consumer of one partition, which knows how many requests it has sent to each broker."""

    def __init__(self, cluster: BrokerCluster, topic: str, rack: str) -> None:
        self._statistics: dict[str, Any] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": str(uuid.uuid4()),
                "client.rack": rack,
                "fetch.wait.max.ms": 100,
                "statistics.interval.ms": 50,
                "stats_cb": self._note,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def _note(self, text: str) -> None:
        self._statistics = json.loads(text)

    def read(self, count: int) -> list[bytes | None]:
        found: list[bytes | None] = []

        def has_all() -> bool:
            message: Message | None = self._consumer.poll(0.1)
            if message is not None:
                assert not message.error(), message.error()
                found.append(message.value())
            return len(found) == count

        wait_until(has_all, f"{count} messages, not only {len(found)}", 30)
        return found

    def fetches(self) -> dict[int, int]:
        """The number of fetches by broker so far."""
        self._consumer.poll(0)
        brokers = self._statistics.get("brokers", {}).values()
        return {each["nodeid"]: each["req"].get("Fetch", 0) for each in brokers if each["nodeid"] > 0}

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def topic(cluster: BrokerCluster) -> str:
    name = f"topic-{uuid.uuid4()}"
    Admin(Connection(cluster.bootstrap)).create_topic(name, 1, 3)
    cluster.wait_for_leader(name)
    cluster.wait_until_in_sync(name)
    return name


def send(producer: Producer, topic: str, *values: str) -> list[KafkaError | None]:
    """Send messages one after the other. Return the error of each, or None."""
    errors: list[KafkaError | None] = []
    for value in values:
        producer.produce(topic, value, partition=0, callback=lambda error, _: errors.append(error))
        producer.flush(30)
    return errors


def test_a_consumer_with_a_rack_reads_from_the_follower_there(cluster: BrokerCluster, topic: str) -> None:
    leader = cluster.leader_of(topic)
    follower = next(node_id for node_id in cluster.brokers if node_id != leader)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})
    assert send(producer, topic, "a", "b") == [None, None]
    reader = Reader(cluster, topic, f"rack-{follower}")
    assert reader.read(2) == [b"a", b"b"]
    assert send(producer, topic, "c") == [None]
    assert reader.read(1) == [b"c"]
    wait_until(lambda: reader.fetches().get(follower, 0) > 3, "fetches from the follower")
    before = reader.fetches()
    wait_until(lambda: reader.fetches()[follower] > before[follower] + 3, "more of them")
    assert reader.fetches()[leader] == before[leader]
    reader.close()


def test_a_consumer_goes_back_to_the_leader_when_its_follower_is_gone(cluster: BrokerCluster, topic: str) -> None:
    leader = cluster.leader_of(topic)
    follower = next(node_id for node_id in cluster.brokers if node_id != leader)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})
    reader = Reader(cluster, topic, f"rack-{follower}")
    assert send(producer, topic, "a") == [None]
    assert reader.read(1) == [b"a"]
    cluster.kill(follower)
    try:
        assert send(producer, topic, "b") == [None]
        assert reader.read(1) == [b"b"]
    finally:
        cluster.start(follower)
        cluster.wait_until_in_sync(topic)
    reader.close()


def test_an_idempotent_producer_continues_with_the_new_leader(cluster: BrokerCluster, topic: str) -> None:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 0, "retry.backoff.ms": 50}
    )
    assert send(producer, topic, "a") == [None]
    leader = cluster.leader_of(topic)
    cluster.stop(leader)
    try:
        assert send(producer, topic, "b", "c") == [None, None]
    finally:
        cluster.start(leader)
        cluster.wait_until_in_sync(topic)
    reader = Reader(cluster, topic, "")
    assert reader.read(3) == [b"a", b"b", b"c"]
    reader.close()
