"""Produce: which batches are stored, which are refused, and the responses."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from skylog.errors import ErrorCode
from skylog.protocol.api_versions import ApiVersionsRequest
from skylog.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from skylog.records import BatchHeader, Codec, Record, build_batch, check_batch, read_records
from skylog.records.batch import CRC_START
from skylog.testing.files import DiskFaults
from tests.present import present

from .conftest import MakeTopic
from .process import BrokerProcess, BrokerThread
from .raw import RawClient, batch_of, produce_request, values_in

VERSIONS = range(3, 12)


def resealed(batch: bytearray, **fields: int) -> bytearray:
    """The batch with header fields changed and its CRC right again."""
    header = BatchHeader.read(batch)._replace(**fields)
    batch = bytearray(header.pack() + batch[61:])
    return bytearray(header._replace(crc=crc32c(memoryview(batch)[CRC_START:])).pack() + batch[61:])


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_batch_is_stored_as_sent_with_offset_and_epoch_filled_in(
    client: RawClient, make_topic: MakeTopic, version: int, acks: int
) -> None:
    topic = make_topic()
    for turn in range(3):  # the same form of request again may take another way through the broker
        sent = batch_of(b"one", b"two%d" % turn, base_offset=99, leader_epoch=7)
        answer = client.produce(topic, sent, version=version, acks=acks)
        assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, 2 * turn, -1)
        assert answer.log_start_offset == (0 if version >= 5 else -1)
        stored = bytes(present(client.fetch(topic, 2 * turn).records))
        header = BatchHeader.read(stored)
        assert (header.base_offset, header.partition_leader_epoch) == (2 * turn, 0)
        assert stored[16:] == sent[16:]


@pytest.mark.parametrize("version", VERSIONS)
def test_several_partitions_in_one_request_have_their_own_answers(
    client: RawClient, make_topic: MakeTopic, version: int
) -> None:
    one, two = make_topic(partitions=2), make_topic()
    rows = [PartitionProduceData(index=i, records=bytes(batch_of(b"x"))) for i in range(3)]
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(name=one, partition_data=rows),
            TopicProduceData(name=two, partition_data=rows[:1]),
            TopicProduceData(name="not-there", partition_data=rows[:1]),
        ],
    )
    response = client.ask(request, version)
    found = [
        (topic.name, row.index, row.error_code, row.base_offset)
        for topic in response.responses
        for row in topic.partition_responses
    ]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found == [
        (one, 0, 0, 0),
        (one, 1, 0, 0),
        (one, 2, unknown, -1),
        (two, 0, 0, 0),
        ("not-there", 0, unknown, -1),
    ]


def bad_crc() -> bytearray:
    batch = batch_of(b"value")
    batch[-1] ^= 1
    return batch


def with_magic(magic: int) -> bytearray:
    batch = batch_of(b"value")
    batch[16] = magic
    return batch


REFUSED: list[Any] = [
    pytest.param(bad_crc(), ErrorCode.CORRUPT_MESSAGE, id="bad crc"),
    pytest.param(with_magic(0), ErrorCode.INVALID_RECORD, id="magic 0"),
    pytest.param(with_magic(1), ErrorCode.INVALID_RECORD, id="magic 1"),
    pytest.param(with_magic(3), ErrorCode.INVALID_RECORD, id="magic 3"),
    pytest.param(batch_of(b"a") + batch_of(b"b"), ErrorCode.INVALID_RECORD, id="two batches"),
    pytest.param(batch_of(b"a") + b"tail", ErrorCode.INVALID_RECORD, id="bytes behind"),
    pytest.param(batch_of(b"a")[:-1], ErrorCode.CORRUPT_MESSAGE, id="cut batch"),
    pytest.param(batch_of(b"a")[:40], ErrorCode.CORRUPT_MESSAGE, id="cut header"),
    pytest.param(b"", ErrorCode.INVALID_RECORD, id="no bytes"),
    pytest.param(None, ErrorCode.INVALID_RECORD, id="null"),
    pytest.param(build_batch([], last_offset_delta=0), ErrorCode.INVALID_RECORD, id="no records"),
    pytest.param(resealed(batch_of(b"a"), record_count=5), ErrorCode.INVALID_RECORD, id="more records than offsets"),
    pytest.param(resealed(batch_of(b"a"), last_offset_delta=9), ErrorCode.INVALID_RECORD, id="more offsets"),
    pytest.param(
        resealed(batch_of(b"a"), last_offset_delta=2**31 - 1, record_count=-(2**31)),
        ErrorCode.INVALID_RECORD,
        id="negative count",
    ),
    pytest.param(
        resealed(batch_of(b"a"), last_offset_delta=999_999, record_count=1_000_000),
        ErrorCode.INVALID_RECORD,
        id="more records than bytes",
    ),
    pytest.param(resealed(batch_of(b"a"), attributes=7), ErrorCode.INVALID_RECORD, id="unknown codec"),
    pytest.param(batch_of(b"a", control=True), ErrorCode.INVALID_RECORD, id="control batch"),
    pytest.param(
        resealed(batch_of(b"a"), producer_id=4, base_sequence=-5), ErrorCode.INVALID_RECORD, id="negative sequence"
    ),
    pytest.param(batch_of(bytes(1_048_588)), ErrorCode.MESSAGE_TOO_LARGE, id="too large"),
]


@pytest.mark.parametrize("version", [3, 8, 9, 11])
@pytest.mark.parametrize(("batch", "code"), REFUSED)
def test_a_batch_that_may_not_be_stored_is_refused_and_the_log_stays_as_it_was(
    client: RawClient, make_topic: MakeTopic, batch: bytearray | None, code: ErrorCode, version: int
) -> None:
    topic = make_topic()
    client.produce(topic, batch_of(b"first"), version=version)
    answer = client.produce(topic, batch, version=version)
    assert (ErrorCode(answer.error_code), answer.base_offset) == (code, -1)
    if version >= 8:
        assert answer.error_message
    assert client.produce(topic, batch_of(b"second"), version=version).base_offset == 1
    assert values_in(client.fetch(topic, 0).records) == [(0, b"first"), (1, b"second")]


def test_the_topics_own_limit_of_size_holds(client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic(max_message_bytes="200")
    assert client.produce(topic, batch_of(bytes(100))).error_code == 0
    assert client.produce(topic, batch_of(bytes(200))).error_code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_unknown_acks_are_refused(client: RawClient, make_topic: MakeTopic, acks: int) -> None:
    topic = make_topic()
    assert client.produce(topic, batch_of(b"x"), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert client.end_offset(topic) == 0


def test_acks_all_below_the_least_number_of_replicas_is_refused(client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic(min_insync_replicas="2")
    assert client.produce(topic, batch_of(b"x")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert client.produce(topic, batch_of(b"x"), acks=1).error_code == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_acks_0_is_not_answered_but_the_next_request_is(client: RawClient, make_topic: MakeTopic, version: int) -> None:
    topic = make_topic()
    for number in range(3):
        client.send(produce_request(topic, batch_of(b"%d" % number), acks=0), version)
    assert client.ask(ApiVersionsRequest(), 0).error_code == 0
    assert client.end_offset(topic) == 3


def test_an_error_with_acks_0_closes_the_connection_and_nothing_behind_it_is_done(
    broker: BrokerProcess, client: RawClient, make_topic: MakeTopic
) -> None:
    """The client cannot know that the first has failed; to store the second would break its order."""
    topic = make_topic()
    with RawClient(broker.port) as careless:
        wrong = careless.encode(produce_request(topic, bad_crc(), acks=0), 9)
        right = careless.encode(produce_request(topic, batch_of(b"behind"), acks=0), 9)
        careless.send_bytes(wrong + right)
        assert careless.is_closed()
    assert client.end_offset(topic) == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_records_without_a_key_are_named_when_a_compacted_topic_refuses_them(
    client: RawClient, make_topic: MakeTopic, version: int
) -> None:
    topic = make_topic(cleanup_policy="compact")
    rows = [Record(b"0", b"key"), Record(b"1", None), Record(b"2", b""), Record(b"3", None)]
    for codec in Codec:
        answer = client.produce(topic, build_batch(rows, codec=codec), version=version)
        assert answer.error_code == ErrorCode.INVALID_RECORD
        if version >= 8:
            assert [row.batch_index for row in answer.record_errors] == [1, 3]
            assert all(row.batch_index_error_message for row in answer.record_errors)
    assert client.produce(topic, build_batch([rows[0], rows[2]]), version=version).base_offset == 0


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("version", [3, 7, 9])
def test_log_append_time_is_stamped_by_the_broker(
    client: RawClient, make_topic: MakeTopic, version: int, codec: Codec
) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    for turn in range(2):
        before_ms = time.time_ns() // 1_000_000
        answer = client.produce(topic, batch_of(b"one", b"two", codec=codec), version=version)
        after_ms = time.time_ns() // 1_000_000
        assert before_ms <= answer.log_append_time_ms <= after_ms
        stored = bytes(present(client.fetch(topic, 2 * turn).records))
        header = check_batch(stored)  # the CRC is right
        assert header.is_log_append_time
        assert header.max_timestamp == answer.log_append_time_ms
        assert {record.timestamp for record in read_records(stored)} == {answer.log_append_time_ms}


def test_a_client_may_not_claim_log_append_time(client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    assert client.produce(topic, resealed(batch_of(b"a"), attributes=8)).error_code == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("sent", Codec)
@pytest.mark.parametrize("wanted", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_the_topics_compression_is_what_is_stored(
    client: RawClient, make_topic: MakeTopic, sent: Codec, wanted: str
) -> None:
    topic = make_topic(compression_type=wanted)
    batch = batch_of(b"one" * 50, b"two" * 50, codec=sent, producer_id=5, producer_epoch=0, base_sequence=0)
    assert client.produce(topic, batch).base_offset == 0
    assert client.produce(topic, batch).base_offset == 0, "still known as a duplicate"
    stored = bytes(present(client.fetch(topic, 0).records))
    header = check_batch(stored)
    expected = {"producer": sent, "uncompressed": Codec.NONE}.get(wanted)
    assert header.codec == (Codec[wanted.upper()] if expected is None else expected)
    assert values_in(stored) == [(0, b"one" * 50), (1, b"two" * 50)]
    assert [record.timestamp for record in read_records(stored)] == [1000, 1001]


def test_times_outside_the_topics_bounds_are_refused(client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic(message_timestamp_after_max_ms="60000", message_timestamp_before_max_ms="60000")
    now_ms = time.time_ns() // 1_000_000
    for stamp in (now_ms - 120_000, now_ms + 120_000):
        assert client.produce(topic, batch_of(b"x", timestamp=stamp)).error_code == ErrorCode.INVALID_TIMESTAMP
    assert client.produce(topic, batch_of(b"x", timestamp=now_ms)).error_code == 0


def test_internal_topics_are_written_by_the_broker_alone(client: RawClient) -> None:
    answer = client.produce("__consumer_offsets", batch_of(b"forged"))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_full_disk_does_not_fill_the_log_of_the_broker_with_the_attempts_of_producers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = DiskFaults()
    with BrokerThread(tmp_path / "data", open_file=disk.open_file) as thread, RawClient(thread.port) as client:
        client.metadata("t", create=True)
        disk.free_bytes = 0
        for _ in range(20):
            assert client.produce("t", batch_of(b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.free_bytes = None
        assert client.produce("t", batch_of(b"x")).error_code == 0
    assert sum("produce to t-0" in record.message for record in caplog.records) <= 1
