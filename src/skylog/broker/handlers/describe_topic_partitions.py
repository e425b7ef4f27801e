"""DescribeTopicPartitions (75), version 0: topics in the order of their names, a page of partitions at a time.

No topics means all of them. A page ends where `response_partition_limit` or Kafka's own limit is reached; its cursor
names the partition that the next page begins with.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from skylog.broker.api import Api, Context
from skylog.broker.authorized_operations import TOPIC_OPERATIONS
from skylog.broker.repeats import once
from skylog.broker.turn import in_turns
from skylog.cluster import ClusterImage, TopicImage
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

MAX_PARTITIONS: Final = 2000  # Kafka's max.request.partition.size.limit


async def handle(context: Context, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    image = context.broker.metadata.image
    asked = once(topic.name for topic in request.topics)
    try:
        _check_cursor(request.cursor, asked)
    except KafkaError as error:
        refused = [
            DescribeTopicPartitionsResponseTopic(name=name, error_code=error.code) async for name in in_turns(asked)
        ]
        return DescribeTopicPartitionsResponse(topics=refused)
    first = request.cursor.topic_name if request.cursor else ""
    names = sorted(name for name in asked or image.topics if name >= first)
    limit = max(1, min(request.response_partition_limit, MAX_PARTITIONS))
    return _page(image, names, request.cursor, limit)


def _check_cursor(cursor: Cursor | None, asked: Iterable[str]) -> None:
    if cursor is None:
        return
    if asked and cursor.topic_name not in asked:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the cursor's topic '{cursor.topic_name}' is not asked for")
    if cursor.partition_index < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the cursor's partition is {cursor.partition_index}")


def _page(
    image: ClusterImage, names: Iterable[str], cursor: Cursor | None, limit: int
) -> DescribeTopicPartitionsResponse:
    """At most `limit` partitions. An unknown topic counts as one, which bounds a page of them."""
    rows: list[DescribeTopicPartitionsResponseTopic] = []
    room = limit
    for name in names:
        if room <= 0:
            return DescribeTopicPartitionsResponse(topics=rows, next_cursor=Cursor(topic_name=name, partition_index=0))
        start = cursor.partition_index if cursor and cursor.topic_name == name else 0
        row, stop = _describe(image.topics.get(name), name, start, room)
        rows.append(row)
        if stop is not None:
            return DescribeTopicPartitionsResponse(
                topics=rows, next_cursor=Cursor(topic_name=name, partition_index=stop)
            )
        room -= len(row.partitions) or 1
    return DescribeTopicPartitionsResponse(topics=rows)


def _describe(
    topic: TopicImage | None, name: str, start: int, room: int
) -> tuple[DescribeTopicPartitionsResponseTopic, int | None]:
    """A topic's partitions from `start` on, as many as there is room for; the first that is left out."""
    if topic is None:
        return _unknown(name), None
    stop = min(start + room, len(topic.partitions))
    row = DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=topic.topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                partition_index=index,
                leader_id=topic.partitions[index].leader,
                leader_epoch=topic.partitions[index].leader_epoch,
                replica_nodes=list(topic.partitions[index].replicas),
                isr_nodes=list(topic.partitions[index].in_sync_replicas),
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
            for index in range(start, stop)
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
    return row, stop if stop < len(topic.partitions) else None


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_topic_name(name)
    except KafkaError as error:
        code = error.code
    return DescribeTopicPartitionsResponseTopic(
        name=name,
        error_code=code,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


API = Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, handle)
