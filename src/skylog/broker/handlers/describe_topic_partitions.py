"""DescribeTopicPartitions (75), version 0: topics in the order of their names, a page of partitions at a time.

An empty list of topics means all of them. A page ends at `response_partition_limit` or at Kafka's limit. Its cursor is
the first partition of the next page.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from skylog.broker.api import Api, Context
from skylog.broker.authorized_operations import operations_on
from skylog.broker.partition_view import offline_here, partition_view
from skylog.broker.security.access import may, sees
from skylog.broker.security.needs import each_topic
from skylog.broker.time_slice import cooperatively
from skylog.broker.unique_names import unique
from skylog.cluster import TopicImage
from skylog.errors import ErrorCode, KafkaError
from skylog.model import INTERNAL_TOPICS, check_topic_name
from skylog.protocol.apis import ApiKey
from skylog.protocol.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from skylog.security.acl import AclOperation, ResourceType

if TYPE_CHECKING:
    from skylog.broker.broker import Broker

MAX_PARTITIONS: Final = 2000  # Kafka's max.request.partition.size.limit


async def handle(context: Context, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    broker = context.broker
    asked = unique(topic.name for topic in request.topics)
    try:
        _check_cursor(request.cursor, asked)
    except KafkaError as error:
        refused = [
            DescribeTopicPartitionsResponseTopic(name=name, error_code=error.code)
            async for name in cooperatively(asked)
        ]
        return DescribeTopicPartitionsResponse(topics=refused)
    first = request.cursor.topic_name if request.cursor else ""
    everything = list(broker.metadata.image.topics)
    if context.session.rights is not None and not asked:
        everything = [
            name
            async for name in cooperatively(everything)
            if sees(context, AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        ]
    names = sorted(name for name in asked or everything if name >= first)
    limit = max(1, min(request.response_partition_limit, MAX_PARTITIONS))
    return _page(context, names, request.cursor, limit)


def _check_cursor(cursor: Cursor | None, asked: Iterable[str]) -> None:
    if cursor is None:
        return
    if asked and cursor.topic_name not in asked:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the cursor's topic '{cursor.topic_name}' is not in the request")
    if cursor.partition_index < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the cursor's partition {cursor.partition_index} is negative")


def _page(context: Context, names: Iterable[str], cursor: Cursor | None, limit: int) -> DescribeTopicPartitionsResponse:
    """Return at most `limit` partitions. An unknown topic counts as one, so the page is always bounded."""
    rows: list[DescribeTopicPartitionsResponseTopic] = []
    room = limit
    for name in names:
        if room <= 0:
            return DescribeTopicPartitionsResponse(topics=rows, next_cursor=Cursor(topic_name=name, partition_index=0))
        start = cursor.partition_index if cursor and cursor.topic_name == name else 0
        row, stop = _describe(context, name, start, room)
        rows.append(row)
        if stop is not None:
            return DescribeTopicPartitionsResponse(
                topics=rows, next_cursor=Cursor(topic_name=name, partition_index=stop)
            )
        room -= len(row.partitions) or 1
    return DescribeTopicPartitionsResponse(topics=rows)


def _describe(
    context: Context, name: str, start: int, room: int
) -> tuple[DescribeTopicPartitionsResponseTopic, int | None]:
    """Return up to `room` partitions of a topic from `start` on, and the first that did not fit."""
    if not may(context, AclOperation.DESCRIBE, ResourceType.TOPIC, name):
        return _refuse(context, name, ErrorCode.TOPIC_AUTHORIZATION_FAILED), None
    broker = context.broker
    topic = broker.metadata.image.topics.get(name)
    if topic is None:
        return _unknown(context, name), None
    stop = min(start + room, len(topic.partitions))
    offline = offline_here(topic, broker.replicas)
    row = DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=topic.topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[_partition(broker, topic, index, index in offline) for index in range(start, stop)],
        topic_authorized_operations=operations_on(context, ResourceType.TOPIC, name),
    )
    return row, stop if stop < len(topic.partitions) else None


def _partition(
    broker: Broker, topic: TopicImage, index: int, is_offline: bool
) -> DescribeTopicPartitionsResponsePartition:
    offline = broker.identity.node_id if is_offline else None
    image = topic.partitions[index]
    view = partition_view(image, broker.metadata.image.brokers, offline)
    return DescribeTopicPartitionsResponsePartition(
        error_code=view.error_code,
        partition_index=index,
        leader_id=view.leader,
        leader_epoch=view.leader_epoch,
        replica_nodes=view.replicas,
        isr_nodes=view.in_sync_replicas,
        eligible_leader_replicas=list(image.eligible_replicas),
        last_known_elr=list(image.resigned),
        offline_replicas=view.offline_replicas,
    )


def _unknown(context: Context, name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_topic_name(name)
    except KafkaError as error:
        code = error.code
    return _refuse(context, name, code)


def _refuse(context: Context, name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=name,
        error_code=code,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=operations_on(context, ResourceType.TOPIC, name),
    )


API = Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, handle, needs=(each_topic(AclOperation.DESCRIBE),))
