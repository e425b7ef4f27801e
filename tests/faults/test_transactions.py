"""A copier with exactly-once semantics, while the brokers that coordinate its transactions are killed.

Kafka's transactions test: messages are copied from one topic to another, in transactions that also commit the offsets
of the source. A read_committed reader of the target must find every message once and in order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from random import Random

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from skylog.broker.state_topic import partition_of
from skylog.client import Admin
from skylog.model import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from skylog.testing import BrokerCluster
from tests.proof import proof
from tests.seeds import seed

PARTITIONS = 3
MESSAGES = proof(100_000, 3000)
KILLS = proof(20, 2)
BATCH = proof(500, 100)
ID, GROUP = "copier", "copiers"
STATE_PARTITIONS = 5
ATTEMPT_S = 5.0
PATIENCE_S = 8.0


class Copiers:
    """Copiers, one after the other. If one makes no progress for a while, another one starts, with the same id.

    librdkafka can wait for a coordinator that is gone, far beyond its timeout. The old copier is a zombie then: it may
    wake up at any time, and must do no harm.
    """

    def __init__(self, bootstrap: str) -> None:
        self._brokers = bootstrap
        self._all: list[Copier] = []
        self._moved_at = 0.0
        self._copied = -1

    @property
    def copied(self) -> int:
        return sum(each.copied for each in self._all)

    @property
    def starts(self) -> int:
        return sum(each.starts for each in self._all)

    def supervise(self) -> None:
        for each in self._all:
            if each.failure is not None:
                raise each.failure
        now = time.monotonic()
        if self.copied != self._copied:
            self._copied, self._moved_at = self.copied, now
        elif now - self._moved_at < PATIENCE_S:
            return
        else:
            self._moved_at = now
            self._start()
        if not self._all:
            self._start()

    def _start(self) -> None:
        for each in self._all:
            each.abandon()
        copier = Copier(self._brokers)
        self._all.append(copier)
        copier.start()

    def stop(self) -> None:
        for each in self._all:
            each.stop()


class Copier(threading.Thread):
    """Copies messages until it is stopped. After a fatal error it starts again, like a process would."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="copier", daemon=True)
        self._brokers = bootstrap
        self.copied = 0
        self.starts = 0
        self.failure: BaseException | None = None
        self._is_stopping = threading.Event()

    def abandon(self) -> None:
        """Begin no other transaction. The present one goes on."""
        self._is_stopping.set()

    def stop(self) -> None:
        """Stop soon. One that hangs is left alone."""
        self.abandon()
        self.join(5)

    def run(self) -> None:
        try:
            while not self._is_stopping.is_set():
                self.starts += 1
                self._copy()
        except BaseException as error:
            self.failure = error

    def _copy(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._brokers,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                "max.poll.interval.ms": int(PATIENCE_S * 1000),
            }
        )
        producer = Producer(
            {"bootstrap.servers": self._brokers, "transactional.id": ID, "transaction.timeout.ms": 20_000}
        )
        try:
            producer.init_transactions(60)
            consumer.subscribe(["source"])
            while not self._is_stopping.is_set():
                messages = [each for each in consumer.consume(BATCH, 0.5) if each.error() is None]
                if messages and not self._transfer(producer, consumer, messages):
                    return
        except KafkaException as error:
            if not error.args[0].fatal() and not error.args[0].retriable():
                raise
        finally:
            consumer.close()

    def _transfer(self, producer: Producer, consumer: Consumer, messages: list[Message]) -> bool:
        """Copy messages in one transaction. Return whether the copier may go on with its position."""
        try:
            producer.begin_transaction()
            ends: dict[int, int] = {}
            for message in messages:
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                producer.produce("target", message.value(), partition=partition)
                ends[partition] = offset + 1
            offsets = [TopicPartition("source", partition, end) for partition, end in ends.items()]
            _retried(
                lambda: producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), ATTEMPT_S)
            )
            _retried(lambda: producer.commit_transaction(ATTEMPT_S))
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                _retried(lambda: producer.abort_transaction(ATTEMPT_S))
            return False
        self.copied += len(messages)
        return True


def _retried(action: Callable[[], object]) -> None:
    """Repeat what may be repeated."""
    while True:
        try:
            action()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            time.sleep(0.1)


def coordinator(cluster: BrokerCluster, number: int) -> int:
    """The broker that coordinates the transactions of the copier, or the one that coordinates its group."""
    topic, key = ((TRANSACTION_STATE_TOPIC, ID), (CONSUMER_OFFSETS_TOPIC, GROUP))[number % 2]
    return cluster.wait_for_leader(topic, partition_of(key, STATE_PARTITIONS))


def read_committed(bootstrap: str, partition: int) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    found: list[int] = []
    try:
        consumer.assign([TopicPartition("target", partition, 0)])
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for message in consumer.consume(1000, 1):
                error = message.error()
                value = message.value()
                if error is None and value is not None:
                    found.append(int(value))
                elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                    return found
        raise AssertionError("the end of the partition was not reached: a transaction hangs")
    finally:
        consumer.close()


@pytest.mark.timeout(proof(3600, 300))
def test_messages_are_copied_exactly_once_while_coordinators_are_killed() -> None:
    rng = Random(seed())
    with BrokerCluster() as cluster:
        admin = Admin(cluster.bootstrap)
        for topic in ("source", "target"):
            admin.create_topic(topic, partitions=PARTITIONS)
        source = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
        for number in range(MESSAGES):
            source.produce("source", str(number).encode(), partition=number % PARTITIONS)
            source.poll(0)
        assert source.flush(60) == 0
        copiers = Copiers(cluster.bootstrap)
        try:
            for number in range(KILLS):
                _wait(lambda: copiers.copied > MESSAGES * number // (KILLS + 1), copiers)  # noqa: B023
                victim = coordinator(cluster, number)
                cluster.kill(victim)
                time.sleep(rng.random())
                cluster.start(victim)
                for topic in ("source", "target", TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC):
                    cluster.wait_until_in_sync(topic, seconds=60)
            _wait(lambda: _is_complete(cluster), copiers)
        finally:
            copiers.stop()
        for partition in range(PARTITIONS):
            assert read_committed(cluster.bootstrap, partition) == list(range(partition, MESSAGES, PARTITIONS))


def _is_complete(cluster: BrokerCluster) -> bool:
    """Whether everything is copied, also by a transaction whose outcome the copier does not know."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": GROUP})
    try:
        found = consumer.committed([TopicPartition("source", partition) for partition in range(PARTITIONS)], 30)
        return sum(max(each.offset, 0) for each in found) == MESSAGES
    finally:
        consumer.close()


def _wait(condition: Callable[[], bool], copiers: Copiers) -> None:
    deadline = time.monotonic() + proof(900, 120)
    while not condition():
        copiers.supervise()
        assert time.monotonic() < deadline, f"{copiers.copied} messages are copied, after {copiers.starts} starts"
        time.sleep(0.2)
