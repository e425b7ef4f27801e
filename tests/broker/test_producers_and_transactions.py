"""Producers that a partition remembers, and transactions, of which there are none."""

from __future__ import annotations

import pytest

from skylog.errors import ErrorCode
from skylog.protocol.describe_producers import (
    DescribedProducer,
    DescribeProducersPartition,
    DescribeProducersRequest,
    DescribeProducersTopic,
)
from skylog.protocol.describe_transactions import DescribeTransactionsRequest
from skylog.protocol.find_coordinator import FindCoordinatorRequest
from skylog.protocol.init_producer_id import InitProducerIdRequest
from skylog.protocol.list_transactions import ListTransactionsRequest

from .conftest import MakeTopic
from .raw import RawClient, batch_of


def describe(client: RawClient, topic: str, partition: int = 0) -> DescribeProducersPartition:
    asked = [DescribeProducersTopic(name=topic, partition_indexes=[partition])]
    (row,) = client.ask(DescribeProducersRequest(topics=asked), 0).topics
    assert row.name == topic
    (found,) = row.partitions
    assert found.partition_index == partition
    result: DescribeProducersPartition = found
    return result


class TestDescribeProducers:
    def test_a_producer_is_described_with_its_epoch_and_last_sequence(
        self, client: RawClient, make_topic: MakeTopic
    ) -> None:
        topic = make_topic()
        for sequence in (0, 2):
            batch = batch_of(b"x", b"y", timestamp=5000, producer_id=71, producer_epoch=3, base_sequence=sequence)
            assert client.produce(topic, batch).error_code == ErrorCode.NONE
        client.produce(topic, batch_of(b"z", timestamp=6000, producer_id=72, producer_epoch=0, base_sequence=0))
        client.produce(topic, batch_of(b"of a producer without an id"))
        found = describe(client, topic)
        assert found.error_code == ErrorCode.NONE
        assert found.active_producers == [
            DescribedProducer(
                producer_id=71, producer_epoch=3, last_sequence=3, last_timestamp=5001, coordinator_epoch=-1
            ),
            DescribedProducer(
                producer_id=72, producer_epoch=0, last_sequence=0, last_timestamp=6000, coordinator_epoch=-1
            ),
        ]

    def test_a_partition_nobody_has_produced_to_has_none(self, client: RawClient, make_topic: MakeTopic) -> None:
        assert describe(client, make_topic()).active_producers == []

    @pytest.mark.parametrize(
        ("topic", "partition", "code"),
        [
            ("none", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("not/valid", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ],
    )
    def test_an_unknown_partition_is_told(self, client: RawClient, topic: str, partition: int, code: ErrorCode) -> None:
        found = describe(client, topic, partition)
        assert (found.error_code, found.active_producers) == (code, [])
        assert found.error_message

    def test_an_unknown_number_is_told(self, client: RawClient, make_topic: MakeTopic) -> None:
        assert describe(client, make_topic(), 1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TestTransactions:
    @pytest.mark.parametrize("version", [0, 1])
    def test_none_are_listed_and_states_that_kafka_does_not_have_are_told(
        self, client: RawClient, version: int
    ) -> None:
        response = client.ask(ListTransactionsRequest(), version)
        assert (response.error_code, response.transaction_states) == (ErrorCode.NONE, [])
        filters = ["Ongoing", "Gone", "ongoing", "Gone", "PrepareEpochFence"]
        response = client.ask(ListTransactionsRequest(state_filters=filters), version)
        assert response.unknown_state_filters == ["Gone", "ongoing"]
        assert response.transaction_states == []

    def test_no_transactional_id_is_known(self, client: RawClient) -> None:
        response = client.ask(DescribeTransactionsRequest(transactional_ids=["t", "u"]), 0)
        assert [(row.transactional_id, row.error_code) for row in response.transaction_states] == [
            ("t", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
            ("u", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        ]

    @pytest.mark.parametrize("version", [1, 2, 3])
    def test_a_transactional_id_has_no_coordinator_and_the_error_is_not_one_to_retry(
        self, client: RawClient, version: int
    ) -> None:
        response = client.ask(FindCoordinatorRequest(key="t", key_type=1), version)
        assert response.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert not ErrorCode(response.error_code).retriable
        assert "transaction" in response.error_message

    @pytest.mark.parametrize("version", [4, 5])
    def test_each_of_several_transactional_ids_is_refused(self, client: RawClient, version: int) -> None:
        request = FindCoordinatorRequest(coordinator_keys=["t", "u"], key_type=1)
        refused = client.ask(request, version).coordinators
        assert [(row.key, row.error_code, row.node_id) for row in refused] == [
            ("t", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1),
            ("u", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1),
        ]

    def test_an_unknown_type_of_key_is_refused(self, client: RawClient) -> None:
        assert client.ask(FindCoordinatorRequest(key="t", key_type=2), 3).error_code == ErrorCode.INVALID_REQUEST

    @pytest.mark.parametrize("version", range(6))
    def test_a_transactional_producer_gets_no_id(self, client: RawClient, version: int) -> None:
        response = client.ask(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000), version)
        assert response.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert response.producer_id == -1

    def test_an_empty_transactional_id_is_refused(self, client: RawClient) -> None:
        response = client.ask(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000), 4)
        assert response.error_code == ErrorCode.INVALID_REQUEST
