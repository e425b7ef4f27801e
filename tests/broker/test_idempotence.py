"""Idempotent producers: the last five batches are known, gaps are errors, sequences wrap."""

from __future__ import annotations

from pathlib import Path

import pytest

from skylog.errors import ErrorCode
from skylog.protocol.init_producer_id import InitProducerIdRequest

from .conftest import MakeTopic, create_topic
from .process import BrokerProcess
from .raw import RawClient, batch_of, values_in


def sequenced(producer_id: int, sequence: int, *values: bytes, epoch: int = 0) -> bytearray:
    return batch_of(
        *(values or (b"%d" % sequence,)), producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )


@pytest.mark.parametrize("version", range(6))
def test_every_version_gives_out_fresh_ids(client: RawClient, version: int) -> None:
    ids = []
    for old_id, old_epoch in ((-1, -1), (0, 0), (17, 3)):
        request = InitProducerIdRequest(transaction_timeout_ms=1000, producer_id=old_id, producer_epoch=old_epoch)
        response = client.ask(request, version)
        assert (response.error_code, response.producer_epoch) == (0, 0)
        ids.append(response.producer_id)
    assert len(set(ids)) == 3
    assert min(ids) >= 0


@pytest.mark.parametrize("version", range(3, 12))
def test_a_batch_sent_again_is_a_success_with_its_first_offset(
    client: RawClient, make_topic: MakeTopic, version: int
) -> None:
    topic = make_topic()
    for sequence in range(6):
        assert client.produce(topic, sequenced(1, sequence), version=version).base_offset == sequence
    for sequence in range(1, 6):
        again = client.produce(topic, sequenced(1, sequence), version=version)
        assert (again.error_code, again.base_offset) == (0, sequence)
    assert client.end_offset(topic) == 6


def test_a_batch_older_than_five_is_out_of_order(client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    for sequence in range(6):
        client.produce(topic, sequenced(1, sequence))
    code = client.produce(topic, sequenced(1, 0)).error_code
    assert code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert client.end_offset(topic) == 6


def test_a_gap_is_out_of_order_and_is_closed_by_the_missing_batch(client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    client.produce(topic, sequenced(1, 0, b"a", b"b"))
    assert client.produce(topic, sequenced(1, 3)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.produce(topic, sequenced(1, 1)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.produce(topic, sequenced(1, 2)).base_offset == 2
    assert client.produce(topic, sequenced(1, 3)).base_offset == 3


def test_sequences_wrap_after_2_31_minus_1(client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    first, last = 2**31 - 3, 2**31 - 1
    assert client.produce(topic, sequenced(1, first, b"a", b"b")).base_offset == 0
    assert client.produce(topic, sequenced(1, last, b"c", b"d")).base_offset == 2, "its last sequence is 0"
    assert client.produce(topic, sequenced(1, last, b"c", b"d")).base_offset == 2
    assert client.produce(topic, sequenced(1, 1, b"e")).base_offset == 4
    assert client.end_offset(topic) == 5


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_0(client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    client.produce(topic, sequenced(1, 0, epoch=1))
    assert client.produce(topic, sequenced(1, 1, epoch=0)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.produce(topic, sequenced(1, 5, epoch=2)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.produce(topic, sequenced(1, 0, epoch=2)).base_offset == 1


def test_partitions_and_producers_are_independent(client: RawClient, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    assert client.produce(topic, sequenced(1, 0)).base_offset == 0
    assert client.produce(topic, sequenced(2, 0)).base_offset == 1
    assert client.produce(topic, sequenced(1, 0), partition=1).base_offset == 0


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_producers_and_their_ids_survive_a_restart(tmp_path: Path, how: str) -> None:
    broker = BrokerProcess(tmp_path / "data")
    request = InitProducerIdRequest(transaction_timeout_ms=1000)
    with broker:
        with RawClient(broker.port) as client:
            create_topic(client, "t", 1, {"segment_bytes": "500"})
            producer_id = client.ask(request, 4).producer_id
            for sequence in range(12):
                client.produce("t", sequenced(producer_id, sequence))
        getattr(broker, how)()
        broker.start()
        with RawClient(broker.port) as client:
            assert client.ask(request, 4).producer_id > producer_id
            for sequence in range(7, 12):
                assert client.produce("t", sequenced(producer_id, sequence)).base_offset == sequence
            assert client.produce("t", sequenced(producer_id, 13)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert client.produce("t", sequenced(producer_id, 12)).base_offset == 12
            found = [value for start in range(13) for value in values_in(client.fetch("t", start).records)[:1]]
            assert found == [(n, b"%d" % n) for n in range(13)]
