"""DescribeProducers: the producers that a partition remembers."""

from __future__ import annotations

import pytest

from skylog.errors import ErrorCode
from skylog.protocol.describe_producers import (
    DescribedProducer,
    DescribeProducersPartition,
    DescribeProducersRequest,
    DescribeProducersTopic,
)

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

    def test_a_partition_without_batches_has_none(self, client: RawClient, make_topic: MakeTopic) -> None:
        assert describe(client, make_topic()).active_producers == []

    @pytest.mark.parametrize(
        ("topic", "partition", "code"),
        [
            ("none", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("not/valid", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ],
    )
    def test_an_unknown_partition_is_an_error(
        self, client: RawClient, topic: str, partition: int, code: ErrorCode
    ) -> None:
        found = describe(client, topic, partition)
        assert (found.error_code, found.active_producers) == (code, [])
        assert found.error_message

    def test_an_unknown_partition_index_is_an_error(self, client: RawClient, make_topic: MakeTopic) -> None:
        assert describe(client, make_topic(), 1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
