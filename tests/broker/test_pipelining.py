"""Many requests at once on a connection: answered in their order, whatever each has to wait for."""

from __future__ import annotations

import time

import pytest

from skylog.errors import ErrorCode
from skylog.protocol.api_versions import ApiVersionsRequest
from skylog.protocol.init_producer_id import InitProducerIdRequest
from skylog.protocol.metadata import MetadataRequest
from skylog.records import BatchHeader
from tests.patience import patience

from .conftest import MakeTopic
from .process import BrokerProcess
from .raw import RawClient, batch_of, fetch_request, produce_request, values_in


def test_a_thousand_produces_in_one_write_are_answered_in_order(client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    client.send_bytes(b"".join(client.encode(produce_request(topic, batch_of(b"%d" % n)), 9) for n in range(1000)))
    offsets = [client.receive().responses[0].partition_responses[0].base_offset for _ in range(1000)]
    assert offsets == list(range(1000))


@pytest.mark.parametrize("version", [7, 9, 11])
def test_produces_that_are_stored_together_each_get_their_own_answer(
    client: RawClient, make_topic: MakeTopic, version: int
) -> None:
    """Several partitions, batches of several sizes, damaged and oversized ones among them, in one write."""
    topic = make_topic(partitions=2)
    damaged = batch_of(b"damaged")
    damaged[-1] ^= 1
    batches = [
        (partition, batch_of(*[b"%d-%d" % (n, i) for i in range(n % 3 + 1)]))
        for n in range(30)
        for partition in (0, 0, 0, 1)
    ]
    batches[50:50] = [(0, damaged), (0, batch_of(b"x" * 1_100_000))]
    for partition in (0, 1):  # from now on the form of these requests is known
        client.produce(topic, batch_of(b"first"), partition=partition, version=version)
    client.send_bytes(
        b"".join(client.encode(produce_request(topic, batch, partition=index), version) for index, batch in batches)
    )
    due = [1, 1]
    for partition, batch in batches:
        (answer,) = client.receive().responses[0].partition_responses
        assert answer.index == partition
        if batch is damaged or len(batch) > 1_000_000:
            assert answer.error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)
            continue
        assert (answer.error_code, answer.base_offset) == (0, due[partition])
        due[partition] += BatchHeader.read(batch).record_count
    for partition in (0, 1):
        assert client.end_offset(topic, partition) == due[partition]
        kept = [value for _, value in values_in(client.fetch(topic, 1, partition=partition).records)]
        sent = [
            value
            for index, batch in batches
            if index == partition and batch is not damaged and len(batch) < 1_000_000
            for _, value in values_in(batch)
        ]
        assert kept == sent


@pytest.mark.parametrize("flush", ["1", "5"])
def test_answers_keep_their_order_among_fsyncs_waits_and_quick_ones(
    client: RawClient, make_topic: MakeTopic, flush: str
) -> None:
    durable, plain, empty = make_topic(flush_messages=flush), make_topic(), make_topic()
    requests = []
    for n in range(40):
        requests += [
            (produce_request(durable, batch_of(b"%d" % n)), 9),
            (produce_request(plain, batch_of(b"%d" % n), acks=1), 7),
            (ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 3),
            (fetch_request(durable, n), 12),
            (produce_request(plain, batch_of(b"%d" % n), acks=0), 7),
            (InitProducerIdRequest(transaction_timeout_ms=1), 2),
            (MetadataRequest(topics=[]), 9),
        ]
        if n % 10 == 0:
            requests.append((fetch_request(empty, 0, max_wait_ms=30), 4))
    client.send_bytes(b"".join(client.encode(request, version) for request, version in requests))
    answered = 0
    for request, _ in requests:
        if getattr(request, "acks", None) == 0:
            continue
        client.receive()  # checks that it is the answer to the request that is due
        answered += 1
    assert answered == 40 * 6 + 4
    assert client.end_offset(durable) == 40
    assert client.end_offset(plain) == 80


def test_requests_behind_a_parked_fetch_are_handled_after_its_response(
    broker: BrokerProcess, client: RawClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    with RawClient(broker.port) as reader:
        parked = reader.encode(fetch_request(topic, 0, max_wait_ms=30_000), 12)
        behind = [reader.encode(ApiVersionsRequest(), 0) for _ in range(50)]
        reader.send_bytes(parked + behind[0][:6])
        assert not reader.has_answer(0.05)
        reader.send_bytes(behind[0][6:] + b"".join(behind[1:]))
        assert not reader.has_answer(0.05)
        began = time.monotonic()
        client.produce(topic, batch_of(b"x"))
        for _ in range(51):
            reader.receive()
        assert time.monotonic() - began < patience(5)


def test_requests_cut_at_any_byte_are_put_together(client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    stream = b"".join(client.encode(produce_request(topic, batch_of(b"%d" % n)), 9) for n in range(12))
    for start in range(0, len(stream), 7):
        client.send_bytes(stream[start : start + 7])
    assert [client.receive().responses[0].partition_responses[0].base_offset for _ in range(12)] == list(range(12))


@pytest.mark.parametrize("size", [10, 16_000, 17_000, 64_000, 66_000, 200_000, 1_000_000])
def test_frames_of_any_size_follow_each_other(client: RawClient, make_topic: MakeTopic, size: int) -> None:
    topic = make_topic()
    client.send_bytes(b"".join(client.encode(produce_request(topic, batch_of(bytes(size))), 9) for _ in range(5)))
    assert [client.receive().responses[0].partition_responses[0].base_offset for _ in range(5)] == list(range(5))
    assert client.ask(ApiVersionsRequest(), 0).error_code == 0
