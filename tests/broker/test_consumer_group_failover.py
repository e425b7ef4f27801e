"""Groups of the consumer protocol when brokers go away: the coordinator fails over, and a lone broker restarts."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer

from skylog.broker.state_topic import partition_of
from skylog.client import Admin, Connection
from skylog.model import CONSUMER_OFFSETS_TOPIC
from skylog.testing import BrokerCluster, BrokerProcess, wait_until
from tests.clients.peers.members import ConfluentMember, Wish

PARTITIONS = 6
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
    "offsets.topic.num.partitions": "5",
}
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with BrokerCluster(settings=SETTINGS, session_timeout_ms=1000) as cluster:
        yield cluster


def send(bootstrap: str, topic: str) -> None:
    """Send one message to each partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    for partition in range(PARTITIONS):
        producer.produce(topic, b"x", partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def shared(*members: ConfluentMember) -> bool:
    """Whether each partition has one owner, and each member its share."""
    assigned = [member.look().assignment for member in members]
    every = sorted(number for one in assigned for number in one)
    return every == list(range(PARTITIONS)) and {len(one) for one in assigned} == {PARTITIONS // len(members)}


def read(count: int, *members: ConfluentMember) -> bool:
    """Whether the members have read the first messages of all partitions."""
    everything = set().union(*(member.look().read for member in members))
    return everything >= {(partition, offset) for partition in range(PARTITIONS) for offset in range(count)}


def test_the_members_go_on_after_their_coordinator_was_killed(cluster: BrokerCluster) -> None:
    topic = f"topic-{uuid.uuid4()}"
    Admin(Connection(cluster.bootstrap)).create_topic(topic, PARTITIONS, 3)
    wish = Wish(f"group-{uuid.uuid4()}", topic, ("uniform",), protocol="consumer")
    send(cluster.bootstrap, topic)
    with (
        closing(ConfluentMember(cluster.bootstrap, wish)) as one,
        closing(ConfluentMember(cluster.bootstrap, wish)) as two,
    ):
        wait_until(lambda: shared(one, two), "both to have their share", PATIENCE_S)
        wait_until(lambda: read(1, one, two), "the first messages", PATIENCE_S)
        owned = one.look().assignment
        for partition in owned:
            one.commit(partition, 1)
        index = partition_of(wish.group, 5)
        cluster.wait_until_in_sync(CONSUMER_OFFSETS_TOPIC)
        coordinator = cluster.leader_of(CONSUMER_OFFSETS_TOPIC, index)
        cluster.kill(coordinator)
        cluster.wait_for_leader(CONSUMER_OFFSETS_TOPIC, index, other_than=coordinator)
        send(cluster.bootstrap, topic)
        wait_until(lambda: read(2, one, two), "what was sent after the failover", PATIENCE_S)
        assert one.look().assignment == owned  # the new coordinator knows the group, so nothing moves
        for partition in owned:
            one.commit(partition, 2)
        with closing(ConfluentMember(cluster.bootstrap, wish)) as three:
            wait_until(lambda: shared(one, two, three), "a third member to have its share", PATIENCE_S)
        wait_until(lambda: shared(one, two), "both to have its share back", PATIENCE_S)
    cluster.start()


def test_the_members_go_on_after_a_restart_of_the_only_broker(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", SETTINGS) as broker:
        Admin(Connection(broker.bootstrap)).create_topic("t", PARTITIONS)
        wish = Wish("g", "t", ("range",), protocol="consumer")
        send(broker.bootstrap, "t")
        with (
            closing(ConfluentMember(broker.bootstrap, wish)) as one,
            closing(ConfluentMember(broker.bootstrap, wish)) as two,
        ):
            wait_until(lambda: shared(one, two) and read(1, one, two), "both to read", PATIENCE_S)
            owned = one.look().assignment
            broker.kill()
            broker.start()
            send(broker.bootstrap, "t")
            wait_until(lambda: read(2, one, two), "what was sent after the restart", PATIENCE_S)
            assert one.look().assignment == owned
            for member in (one, two):
                for partition in member.look().assignment:
                    member.commit(partition, 2)
        send(broker.bootstrap, "t")
        with closing(ConfluentMember(broker.bootstrap, wish)) as three:
            wait_until(lambda: len(three.look().read) == PARTITIONS, "the rest", PATIENCE_S)
            assert three.look().read == {(partition, 2) for partition in range(PARTITIONS)}
