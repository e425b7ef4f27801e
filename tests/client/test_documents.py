"""The snippets of the documents that skylog was built from, in skylog's own API."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from skylog import Admin, Producer, SimpleConsumer, message_streams
from skylog.model import TopicPartition
from tests.seeds import seed


def test_letters_are_consumed_from_an_offset(skylog_bootstrap: str, skylog_topic: str) -> None:
    producer = Producer(skylog_bootstrap)
    for letter in ["a", "b", "c", "d", "e"]:
        producer.send(skylog_topic, letter, partition=0)
    producer.flush()

    consumer = SimpleConsumer(skylog_topic, partition=0, offset=1, bootstrap=skylog_bootstrap)
    assert consumer.offset == 1
    assert [message.text() for message in consumer.consume()] == ["b", "c", "d", "e"]
    assert consumer.offset == 5
    consumer.close()
    producer.close()


def organization_partitioner(organization: int, partition_count: int) -> int:
    """All events of an organisation are in one partition."""
    return organization % partition_count


def test_a_producer_with_an_organisation_partitioner(
    skylog_bootstrap: str, skylog_admin: Admin, four_partitions: str
) -> None:
    organizations = [10, 11, 14, 18]
    dice = random.Random(seed())
    with Producer(skylog_bootstrap, partitioner=organization_partitioner) as producer:
        for organization in organizations:
            for event in range(25):
                runtime = int(time.time() * 1000)
                message = f"{runtime},{50 + organization},{event},{dice.randrange(1000)}"
                producer.send(four_partitions, message, key=organization)

    held = skylog_admin.offset_ranges([TopicPartition(four_partitions, number) for number in range(4)])
    assert [len(offsets) for offsets in held.values()] == [0, 0, 75, 25]
    consumer = SimpleConsumer(four_partitions, partition=3, offset=0, bootstrap=skylog_bootstrap)
    assert {message.key for message in consumer.consume()} == {b"11"}
    consumer.close()


def test_the_simple_consumer_loop_reads_until_nothing_comes(skylog_bootstrap: str, letters: str) -> None:
    lines = []
    with SimpleConsumer(letters, partition=0, offset=0, bootstrap=skylog_bootstrap) as simple_consumer:
        while messages := simple_consumer.consume():
            lines += [f"{message.offset}:{message.text()}" for message in messages]
    assert lines == ["0:a", "1:b", "2:c", "3:d", "4:e"]


def test_four_streams_in_four_threads(skylog_bootstrap: str, four_partitions: str) -> None:
    seen: list[tuple[str, int]] = []
    everything_seen = threading.Event()

    with (
        ThreadPoolExecutor(4) as executor,
        message_streams({four_partitions: 4}, group=f"{four_partitions}-group", bootstrap=skylog_bootstrap) as streams,
    ):

        def process(stream: object) -> None:
            for message in stream:  # type: ignore[attr-defined]
                seen.append((threading.current_thread().name, message.json()))
                if len(seen) == 400:
                    everything_seen.set()

        for stream in streams[four_partitions]:
            executor.submit(process, stream)
        with Producer(skylog_bootstrap) as producer:
            for number in range(400):
                producer.send(four_partitions, number, partition=number % 4)
        assert everything_seen.wait(60), f"{len(seen)} of 400 messages were seen"
    assert sorted(number for _, number in seen) == list(range(400))
