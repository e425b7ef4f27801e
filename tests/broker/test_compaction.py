"""Compaction in a running broker: clients see the last value of each key, before, during and after."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from skylog.records import Record, build_batch
from tests.present import present

from .conftest import create_topic
from .process import BrokerProcess, until
from .raw import RawClient

TOPIC = "ceo"
KEYS = 50
ROUNDS = 200
QUICK_CLEANING = {
    "log.cleaner.backoff.ms": "50",
    "log.flush.scheduler.interval.ms": "50",
    "log.flush.offset.checkpoint.interval.ms": "50",
}
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "20000", "min.cleanable.dirty.ratio": "0.01"}


def fill(address: str) -> dict[bytes, bytes]:
    """Every key many times over; the last value of each."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 1, "batch.size": 2000})
    state = {}
    for number in range(ROUNDS):
        for key in range(KEYS):
            pair = (b"company-%d" % key, b"person-%d-%d" % (key, number))
            producer.produce(TOPIC, pair[1], key=pair[0], partition=0)
            state[pair[0]] = pair[1]
        producer.poll(0)
    assert producer.flush(20) == 0
    return state


def read(address: str) -> list[tuple[int, bytes, bytes]]:
    """Offset, key and value of everything in the topic."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "reader", "enable.auto.commit": False})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=10)
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        rows: list[tuple[int, bytes, bytes]] = []
        while not rows or rows[-1][0] < end - 1:
            for message in consumer.consume(200, timeout=0.5):
                assert message.error() is None, message.error()
                rows.append((present(message.offset()), present(message.key()), present(message.value())))
        return rows
    finally:
        consumer.close()


@pytest.fixture
def broker(tmp_path: Path) -> BrokerProcess:
    return BrokerProcess(tmp_path / "data", QUICK_CLEANING)


def log_bytes(broker: BrokerProcess) -> int:
    total = 0
    for path in (broker.data_dir / f"{TOPIC}-0").glob("*.log"):
        with contextlib.suppress(FileNotFoundError):  # it has just been replaced
            total += path.stat().st_size
    return total


def test_a_compacted_topic_shrinks_to_the_last_value_of_each_key_and_survives_kill_9(broker: BrokerProcess) -> None:
    with broker:
        address = f"127.0.0.1:{broker.port}"
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=COMPACTED)])[TOPIC].result(10)
        state = fill(address)
        # Whatever the moment, the newest value of each key is the one that was written last.
        assert {key: value for _, key, value in read(address)} == state
        until(lambda: log_bytes(broker) < 60_000, "the log to shrink")
        rows = read(address)
        assert {key: value for _, key, value in rows} == state
        assert len(rows) < ROUNDS * KEYS / 2
        assert [row[0] for row in rows] == sorted({row[0] for row in rows})
        broker.kill()
        broker.start()
        assert {key: value for _, key, value in read(address)} == state
    assert not broker.tracebacks()


def test_a_cleaner_does_not_outlive_its_broker(tmp_path: Path) -> None:
    """The next broker may clean the same log: two that write into one folder would spoil each other's files."""
    with BrokerProcess(tmp_path / "data", {"log.cleaner.backoff.ms": "50"}) as broker:
        with RawClient(broker.port) as client:
            settings = {"cleanup_policy": "compact", "segment_bytes": "100000", "min_cleanable_dirty_ratio": "0.01"}
            create_topic(client, "t", 1, settings)
            batch = build_batch([Record(b"value", b"%d" % number, 1000) for number in range(3000)])
            for _ in range(40):
                assert client.produce("t", batch).error_code == 0
        until(lambda: (broker.data_dir / "t-0" / "cleaning").exists(), "the cleaner's files")
        (cleaner,) = children(broker.pid)
        os.kill(cleaner, signal.SIGSTOP)  # it would take long
        try:
            broker.kill()
            until(lambda: not is_alive(cleaner), "the cleaner's end", 10)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(cleaner, signal.SIGKILL)
        broker.start()


def children(pid: int) -> list[int]:
    """The processes that any thread of a process has started."""
    lists = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for found in lists for child in found]


def is_alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
