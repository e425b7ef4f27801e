"""Fetch: which batches come, when a request waits, and what wakes it."""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from skylog.errors import ErrorCode
from skylog.protocol.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from skylog.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from skylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from skylog.protocol.metadata import MetadataRequest, MetadataRequestTopic
from tests.patience import patience

from .conftest import MakeTopic, create_topic
from .process import BrokerProcess, BrokerThread, until
from .raw import RawClient, batch_of, fetch_request, produce_request, values_in

VERSIONS = range(4, 18)
LONG_MS = 30_000
SOON_SECONDS = 5.0


def key_of(client: RawClient, topic: str, version: int) -> str | uuid.UUID:
    return client.topic(topic).topic_id if version >= 13 else topic


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_reads_the_batches_and_the_watermarks(
    client: RawClient, make_topic: MakeTopic, version: int
) -> None:
    topic = make_topic()
    client.produce(topic, batch_of(b"a", b"b"))
    client.produce(topic, batch_of(b"c"))
    for isolation in (0, 1):
        found = client.fetch(key_of(client, topic, version), 0, version=version, isolation=isolation)
        assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 3, 3)
        assert found.log_start_offset == (0 if version >= 5 else -1)
        assert not found.aborted_transactions
        assert values_in(found.records) == [(0, b"a"), (1, b"b"), (2, b"c")]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fetch_inside_a_batch_returns_the_whole_batch(client: RawClient, make_topic: MakeTopic, version: int) -> None:
    topic = make_topic()
    client.produce(topic, batch_of(b"a"))
    client.produce(topic, batch_of(b"b", b"c", b"d"))
    found = client.fetch(key_of(client, topic, version), 2, version=version)
    assert values_in(found.records) == [(1, b"b"), (2, b"c"), (3, b"d")]


@pytest.mark.parametrize("limit", ["max_bytes", "partition_max_bytes"])
@pytest.mark.parametrize("size", [0, 1, 100, -1, -(2**31)])
def test_a_first_batch_larger_than_the_limit_is_sent_alone(
    client: RawClient, make_topic: MakeTopic, limit: str, size: int
) -> None:
    topic = make_topic()
    for value in (b"a" * 1000, b"b" * 1000):
        client.produce(topic, batch_of(value))
    assert values_in(client.fetch(topic, 0, **{limit: size}).records) == [(0, b"a" * 1000)]


def test_whole_batches_up_to_the_partition_limit_are_sent(client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    batches = [batch_of(b"%d" % n * 100) for n in range(10)]
    for batch in batches:
        client.produce(topic, batch)
    limit = sum(len(batch) for batch in batches[:4]) + 1
    assert [offset for offset, _ in values_in(client.fetch(topic, 0, partition_max_bytes=limit).records)] == [
        0,
        1,
        2,
        3,
    ]


def test_the_limit_of_the_request_is_shared_by_its_partitions(client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=4)
    size = len(batch_of(bytes(1000)))
    for partition in range(4):
        client.produce(topic, batch_of(bytes(1000)), partition=partition)
    rows = [FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=2**30) for i in range(4)]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=2 * size + 10, topics=[FetchTopic(topic=topic, partitions=rows)]
    )
    answers = client.ask(request, 12).responses[0].partitions
    assert [len(row.records) for row in answers] == [size, size, 0, 0]
    assert [row.high_watermark for row in answers] == [1, 1, 1, 1]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_append_wakes_a_parked_fetch_long_before_its_time(
    broker: BrokerProcess, client: RawClient, make_topic: MakeTopic, version: int
) -> None:
    topic = make_topic()
    with RawClient(broker.port) as reader:
        reader.send(fetch_request(key_of(client, topic, version), 0, max_wait_ms=LONG_MS), version)
        assert not reader.has_answer(0.05)
        began = time.monotonic()
        client.produce(topic, batch_of(b"news"))
        found = reader.receive().responses[0].partitions[0]
        assert time.monotonic() - began < patience(SOON_SECONDS)
        assert values_in(found.records) == [(0, b"news")]
        assert found.high_watermark == 1


def test_the_append_itself_wakes_the_reader(broker: BrokerProcess, client: RawClient, make_topic: MakeTopic) -> None:
    """A broker that polls for data could not respond to a series of waiting fetches this quickly."""
    topic = make_topic()
    rounds, took = 100, 0.0
    with RawClient(broker.port) as reader:
        for offset in range(rounds):
            reader.send(fetch_request(topic, offset, max_wait_ms=LONG_MS), 12)
            client.produce(topic, batch_of(b"x"))
            began = time.monotonic()
            assert len(values_in(reader.receive().responses[0].partitions[0].records)) == 1
            took += time.monotonic() - began
    assert took / rounds < 0.02


def test_a_fetch_waits_until_several_appends_make_up_its_minimum(
    broker: BrokerProcess, client: RawClient, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=2)
    size = len(batch_of(bytes(1000)))
    rows = [FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=2**20) for i in range(2)]
    request = FetchRequest(
        max_wait_ms=LONG_MS, min_bytes=3 * size, max_bytes=2**20, topics=[FetchTopic(topic=topic, partitions=rows)]
    )
    with RawClient(broker.port) as reader:
        client.produce(topic, batch_of(bytes(1000)), partition=1)
        reader.send(request, 12)
        client.produce(topic, batch_of(bytes(1000)), partition=0)
        assert not reader.has_answer(0.1)
        client.produce(topic, batch_of(bytes(1000)), partition=1)
        answers = reader.receive().responses[0].partitions
        assert [len(row.records) for row in answers] == [size, 2 * size]


@pytest.mark.parametrize("version", [4, 12, 17])
def test_at_the_end_of_the_log_a_fetch_waits_out_its_time(
    client: RawClient, make_topic: MakeTopic, version: int
) -> None:
    topic = make_topic()
    client.produce(topic, batch_of(b"x"))
    began = time.monotonic()
    found = client.fetch(key_of(client, topic, version), 1, max_wait_ms=200, version=version)
    assert 0.19 <= time.monotonic() - began < patience(SOON_SECONDS)
    assert (found.error_code, found.high_watermark, found.records) == (0, 1, b"")


def test_with_no_time_to_wait_the_answer_is_empty_at_once(client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    for max_wait_ms in (0, -1):
        assert client.fetch(topic, 0, max_wait_ms=max_wait_ms, min_bytes=1000).records == b""
    assert client.fetch(topic, 0, max_wait_ms=LONG_MS, min_bytes=0).records == b""


@pytest.mark.parametrize("version", VERSIONS)
def test_outside_the_log_the_error_carries_the_watermarks(
    client: RawClient, make_topic: MakeTopic, version: int
) -> None:
    topic = make_topic()
    for n in range(6):
        client.produce(topic, batch_of(b"%d" % n))
    cut = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])
    client.ask(DeleteRecordsRequest(topics=[cut], timeout_ms=1000), 2)
    for offset in (-1, 0, 1, 7, 2**62, -(2**63)):
        found = client.fetch(key_of(client, topic, version), offset, version=version, max_wait_ms=LONG_MS)
        assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (found.high_watermark, found.last_stable_offset) == (6, 6)
        assert found.log_start_offset == (2 if version >= 5 else -1)
        assert found.records == b""
    assert values_in(client.fetch(key_of(client, topic, version), 2, version=version).records)[0] == (2, b"2")


def test_another_leader_epoch_is_fenced(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    with broker:
        with RawClient(broker.port) as client:
            create_topic(client, "t")
            client.produce("t", batch_of(b"x"))
        broker.kill()
        broker.start()
        with RawClient(broker.port) as client:
            epoch = client.topic("t").partitions[0].leader_epoch
            assert epoch == 1
            for version in range(9, 18):
                key = key_of(client, "t", version)
                for sent, code in (
                    (0, ErrorCode.FENCED_LEADER_EPOCH),
                    (2, ErrorCode.UNKNOWN_LEADER_EPOCH),
                    (1, 0),
                    (-1, 0),
                ):
                    assert client.fetch(key, 0, epoch=sent, version=version).error_code == code


@pytest.mark.parametrize("version", [4, 12])
def test_an_unknown_topic_or_partition_is_an_error_without_waiting(
    client: RawClient, make_topic: MakeTopic, version: int
) -> None:
    for topic, partition in (("not-there", 0), (make_topic(), 1), (make_topic(), -1)):
        found = client.fetch(topic, 0, partition=partition, version=version, max_wait_ms=LONG_MS)
        assert (found.error_code, found.high_watermark) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


@pytest.mark.parametrize("version", range(13, 18))
def test_an_unknown_topic_id_is_an_error(client: RawClient, version: int) -> None:
    found = client.fetch(uuid.uuid4(), 0, version=version, max_wait_ms=LONG_MS)
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_client_that_leaves_while_parked_leaves_nothing_behind(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data") as thread, RawClient(thread.port) as client:
        create_topic(client, "t")
        readers = [RawClient(thread.port) for _ in range(20)]
        for reader in readers:
            reader.send(fetch_request("t", 0, max_wait_ms=LONG_MS), 12)

        def parked() -> int:
            return thread.look(lambda broker: len(broker.replicas.leader("t", 0)._listeners.consumers))

        until(lambda: parked() == 20, "every reader to be parked")
        for reader in readers:
            reader.close()
        until(lambda: parked() == 0, "the lot to be empty")
        until(lambda: thread.look(lambda broker: len(broker.listener.connections)) == 1, "the connections to go")
        assert client.produce("t", batch_of(b"x")).error_code == 0


def test_deleting_a_topic_wakes_its_readers(broker: BrokerProcess, client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with RawClient(broker.port) as reader:
        reader.send(fetch_request(topic, 0, max_wait_ms=LONG_MS), 12)
        assert not reader.has_answer(0.05)
        client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=1000), 6)
        began = time.monotonic()
        found = reader.receive().responses[0].partitions[0]
        assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert time.monotonic() - began < patience(SOON_SECONDS)


def test_large_answers_arrive_whole(client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    for partition in range(3):
        for n in range(5):
            client.produce(topic, batch_of(bytes([65 + n]) * 300_000), partition=partition)
    rows = [FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=2**30) for i in range(3)]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=2**30, topics=[FetchTopic(topic=topic, partitions=rows)]
    )
    found = [values_in(row.records) for row in client.ask(request, 12).responses[0].partitions]
    assert found == [[(n, bytes([65 + n]) * 300_000) for n in range(5)]] * 3


def test_reading_on_from_the_last_offset_goes_through_every_segment(client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic(segment_bytes="1000")
    for n in range(50):
        client.send(produce_request(topic, batch_of(b"%d" % n * 50)), 9)
    for _ in range(50):
        assert client.receive().responses[0].partition_responses[0].error_code == 0
    offset, found = 0, []
    while offset < 50:
        found += values_in(client.fetch(topic, offset).records)
        offset = found[-1][0] + 1
    assert found == [(n, b"%d" % n * 50) for n in range(50)]


MANY = 3000
"""Rows of a request that is large enough to be decoded in a thread."""


def rows_request(topic: str | uuid.UUID, partitions: Iterable[int], **options: Any) -> FetchRequest:
    request = fetch_request(topic, 0, **options)
    row = request.topics[0].partitions[0]
    request.topics[0].partitions = [replace(row, partition=number) for number in partitions]
    return request


def test_a_partition_that_is_named_several_times_is_answered_once_for_its_last_row(
    client: RawClient, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=2)
    for partition in (0, 1):
        for value in (b"a", b"b"):
            client.produce(topic, batch_of(value), partition=partition)
    request = rows_request(topic, [0, 1, 0])
    request.topics[0].partitions[2].fetch_offset = 1
    request.topics.append(rows_request(topic, [1]).topics[0])
    (answered,) = client.ask(request, 12).responses
    assert [row.partition_index for row in answered.partitions] == [0, 1]
    assert [values_in(row.records) for row in answered.partitions] == [[(1, b"b")], [(0, b"a"), (1, b"b")]]


@pytest.mark.parametrize("version", [4, 12, 13, 17])
def test_a_large_request_is_answered_like_a_small_one(client: RawClient, make_topic: MakeTopic, version: int) -> None:
    topic = make_topic(partitions=3)
    for partition in range(3):
        client.produce(topic, batch_of(b"v%d" % partition), partition=partition)
    key = key_of(client, topic, version)
    (answered,) = client.ask(rows_request(key, [number % 3 for number in range(MANY)]), version).responses
    assert [values_in(row.records) for row in answered.partitions] == [[(0, b"v%d" % number)] for number in range(3)]
    (answered,) = client.ask(rows_request(key, range(MANY)), version).responses
    errors = [row.error_code for row in answered.partitions]
    assert errors == [0, 0, 0, *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (MANY - 3)]


def test_a_large_request_is_parked_and_woken(broker: BrokerProcess, client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with RawClient(broker.port) as reader:
        reader.send(rows_request(topic, [0] * MANY, max_wait_ms=LONG_MS), 12)
        assert not reader.has_answer(0.2)
        client.produce(topic, batch_of(b"x"))
        assert values_in(reader.receive().responses[0].partitions[0].records) == [(0, b"x")]
        request = rows_request(topic, [0] * MANY, max_wait_ms=100)
        for row in request.topics[0].partitions:
            row.fetch_offset = 1
        assert len(reader.ask(request, 12).responses[0].partitions) == 1


def test_a_client_that_leaves_a_large_request_parked_leaves_nothing_behind(tmp_path: Path) -> None:
    with BrokerThread(tmp_path / "data") as thread, RawClient(thread.port) as client:
        create_topic(client, "t")

        def parked() -> int:
            return thread.look(lambda broker: len(broker.replicas.leader("t", 0)._listeners.consumers))

        with RawClient(thread.port) as reader:
            reader.send(rows_request("t", [0] * MANY, max_wait_ms=LONG_MS), 12)
            until(lambda: parked() == 1, "the reader to be parked")
        until(lambda: parked() == 0, "the lot to be empty")
        until(lambda: thread.look(lambda broker: broker.listener._budget.used_bytes) == 0, "the memory")


def test_a_large_request_that_cannot_be_read_closes_the_connection(broker: BrokerProcess, client: RawClient) -> None:
    metadata = MetadataRequest(topics=[MetadataRequestTopic(name="n" * 100)] * 2000)
    for request in (rows_request("t", range(MANY)), metadata):
        with RawClient(broker.port) as bad:
            frame = bad.encode(request, 12)
            bad.send_bytes(struct.pack(">i", len(frame) - 24) + frame[4:-20])
            assert bad.is_closed()
    client.metadata()
