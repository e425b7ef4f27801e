"""The sink while its processes are killed: a stream writes each record once, a batch job each at least once.

All of it is for `make proof`. The short forms are test_delivery.py, test_transaction.py and test_stream_writer.py, in
which single steps fail.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as LibraryPartition
from numpy.typing import NDArray

from skylog.client import Admin
from skylog.model import TopicPartition
from skylog.testing import BrokerProcess, wait_until
from tests.proof import in_proof
from tests.spark.chance import chance
from tests.spark.writing.sink_process import SinkJob

COUNT: Final = 1_000_000
PER_TRIGGER: Final = COUNT // 10
PARTITIONS: Final = 2
VICTIMS: Final = ("driver", "java", "worker", "worker", "all")
KILLS: Final = 5
RUNS: Final = KILLS + 5


def fill(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": COUNT})
    for number in range(COUNT):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def counts(bootstrap: str, topic: str, total: int) -> NDArray[np.int64]:
    """How often each number is in the topic, as another client sees it."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.partition.eof": True})
    consumer.assign([LibraryPartition(topic, number, 0) for number in range(PARTITIONS)])
    found, at_end = np.zeros(total, np.int64), 0
    while at_end < PARTITIONS:
        messages = consumer.consume(10_000, timeout=30)
        assert messages, f"{topic} gave nothing for 30 s"
        values = [int(message.value() or b"") for message in messages if message.error() is None]
        np.add.at(found, values, 1)
        at_end += len(messages) - len(values)
    consumer.close()
    return found


class Target:
    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self.topic = f"target-{uuid.uuid4().hex[:8]}"
        admin.create_topic(self.topic, PARTITIONS)

    def written(self) -> int:
        keys = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        return sum(found.end_offset for found in self._admin.offset_ranges(keys).values())

    def wait_for(self, count: int, job: SinkJob) -> bool:
        """Return whether the topic has this many records before the job ends."""
        wait_until(lambda: self.written() >= count or not job.is_running, f"{count} records in {self.topic}", 300)
        return self.written() >= count


@pytest.fixture
def target(skylog_admin: Admin) -> Target:
    return Target(skylog_admin)


@in_proof
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("transactional", ["false", "true"])
def test_a_stream_is_written_once_although_processes_are_killed(
    skylog_broker: BrokerProcess, skylog_admin: Admin, target: Target, tmp_path: Path, transactional: str
) -> None:
    source = f"source-{uuid.uuid4().hex[:8]}"
    skylog_admin.create_topic(source, PARTITIONS)
    fill(skylog_broker.bootstrap, source)
    drawn = chance()
    victims = drawn.sample(VICTIMS, KILLS)
    killed: list[tuple[str, int]] = []
    for _ in range(RUNS):
        arguments = (skylog_broker.bootstrap, source, target.topic, tmp_path, PER_TRIGGER, transactional)
        with SinkJob("copy", *arguments) as job:
            while victims and job.is_running:
                enough = target.written() + drawn.randrange(1, COUNT // (2 * KILLS))  # aborted records count, too
                if target.wait_for(enough, job) and job.kill(victims[0]):
                    killed.append((victims.pop(0), target.written()))
            if job.wait(400) == 0 and not victims:
                break
    assert len(killed) == KILLS
    assert all(0 < at < COUNT for _, at in killed), killed
    found = counts(skylog_broker.bootstrap, target.topic, COUNT)
    assert found.min() == found.max() == 1, killed


@in_proof
def test_a_batch_job_whose_driver_dies_while_sending_writes_again_what_it_had_sent(
    skylog_broker: BrokerProcess, target: Target, tmp_path: Path
) -> None:
    total = 60_000
    arguments = ("numbers", skylog_broker.bootstrap, target.topic, total, tmp_path)
    with SinkJob(*arguments) as job:
        target.wait_for(1, job)
        job.kill("all")
    sent = target.written()
    assert 0 < sent < total
    left = sorted(tmp_path.iterdir())
    with SinkJob(*arguments) as job:
        assert job.wait(400) == 0
    found = counts(skylog_broker.bootstrap, target.topic, total)
    assert found.min() == 1
    assert sent <= found.sum() - total < total  # records in flight may be stored after the kill
    assert sorted(tmp_path.iterdir()) == left  # of the first run; it is unknown whether it still needs them
