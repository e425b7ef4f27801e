"""A copier with exactly-once semantics, while it and the brokers that coordinate its transactions are killed.

Kafka's transactions test: messages are copied from one topic to another, in transactions that also commit the offsets
of the source. A read_committed reader of the target must find every message once and in order.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from skylog.broker.state_topic import partition_of
from skylog.client import Admin
from skylog.model import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from skylog.testing import BrokerCluster
from tests.proof import proof
from tests.seeds import seed

from .copier import GROUP, ID, STARTED

PARTITIONS = 3
MESSAGES = proof(100_000, 3000)
KILLS = proof(20, 2)
BATCH = proof(500, 100)
STATE_PARTITIONS = 5
PATIENCE_S = 15.0  # the session of a killed copier, and a rebalance


class Copier:
    """A copier process. `copied` is the number of messages of the transactions that it knows to be committed."""

    def __init__(self, bootstrap: str) -> None:
        command = [sys.executable, "-m", "tests.faults.copier", bootstrap, str(BATCH)]
        root = Path(__file__).parents[2]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root)
        self.copied = 0
        self.starts = 0
        self._is_killed = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == STARTED:
                self.starts += 1
            elif line.endswith("\n"):  # the last one of a killed process may be cut
                self.copied += int(line)

    def check(self) -> None:
        """Raise if it has ended by itself."""
        code = self._process.poll()
        assert self._is_killed or not code, f"a copier has ended with {code}"

    def abandon(self) -> None:
        """Let it begin no other transaction. The present one goes on."""
        assert self._process.stdin is not None
        if not self._process.stdin.closed:
            self._process.stdin.close()

    def kill(self) -> None:
        self._is_killed = True
        self._process.kill()
        self._process.wait(30)
        self._reader.join(30)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


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
            each.check()
        now = time.monotonic()
        if self.copied != self._copied:
            self._copied, self._moved_at = self.copied, now
        elif now - self._moved_at < PATIENCE_S:
            return
        else:
            self._start()
        if not self._all:
            self._start()

    def _start(self) -> None:
        for each in self._all:
            each.abandon()
        self._moved_at = time.monotonic()
        self._all.append(Copier(self._brokers))

    def kill(self) -> None:
        """Kill the present copier, in whatever it does, and start another one."""
        if self._all:
            self._all[-1].kill()
        self._start()

    def stop(self) -> None:
        for each in self._all:
            each.kill()


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
def test_messages_are_copied_exactly_once_while_coordinators_and_copiers_are_killed() -> None:
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
                if number % 2:
                    copiers.kill()
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
