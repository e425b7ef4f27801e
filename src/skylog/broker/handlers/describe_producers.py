"""DescribeProducers (61), version 0: the idempotent producers of partitions, as the leader or any follower has them."""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.broker.security.access import check_topic
from skylog.broker.security.needs import each_topic
from skylog.broker.time_slice import cooperatively
from skylog.broker.unique_names import unique_by_topic
from skylog.errors import KafkaError
from skylog.model import check_topic_name
from skylog.protocol.apis import ApiKey
from skylog.protocol.describe_producers import (
    DescribedProducer,
    DescribeProducersPartition,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResult,
)
from skylog.security.acl import AclOperation
from skylog.storage.producer_state import ProducerEntry


async def handle(context: Context, request: DescribeProducersRequest) -> DescribeProducersResponse:
    asked = unique_by_topic((topic.name, topic.partition_indexes) for topic in request.topics)
    return DescribeProducersResponse(
        topics=[
            DescribeProducersTopicResult(
                name=topic,
                partitions=[await _describe(context, topic, index) async for index in cooperatively(partitions)],
            )
            async for topic, partitions in cooperatively(asked.items())
        ]
    )


async def _describe(context: Context, topic: str, index: int) -> DescribeProducersPartition:
    try:
        check_topic(context, AclOperation.READ, topic)
        check_topic_name(topic)
        partition = context.broker.replicas.readable(topic, index)
    except KafkaError as error:
        return DescribeProducersPartition(partition_index=index, error_code=error.code, error_message=error.message)
    known = list(partition.log.producers)
    return DescribeProducersPartition(
        partition_index=index,
        active_producers=[_producer(producer_id, entry) async for producer_id, entry in cooperatively(known)],
    )


def _producer(producer_id: int, entry: ProducerEntry) -> DescribedProducer:
    return DescribedProducer(
        producer_id=producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.transaction_start,
    )


API = Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, handle, has_large_answers=True, needs=(each_topic(AclOperation.READ),))
