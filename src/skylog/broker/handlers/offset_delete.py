"""OffsetDelete (47), version 0: delete committed offsets in topics that no member is subscribed to (KIP-496)."""

from __future__ import annotations

from collections.abc import Collection

from skylog.broker.api import Api, Context
from skylog.broker.security.access import check_topic, may
from skylog.broker.security.needs import each_topic, group
from skylog.broker.time_slice import cooperatively
from skylog.broker.unique_names import unique_by_topic
from skylog.errors import ErrorCode, KafkaError
from skylog.model import TopicPartition
from skylog.protocol.apis import ApiKey
from skylog.protocol.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from skylog.security.acl import AclOperation, ResourceType


async def handle(context: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    topics = unique_by_topic(
        (topic.name, (row.partition_index for row in topic.partitions)) for topic in request.topics
    )
    allowed = {
        topic: rows for topic, rows in topics.items() if may(context, AclOperation.READ, ResourceType.TOPIC, topic)
    }
    try:
        names = [TopicPartition(topic, index) for topic, indexes in allowed.items() for index in indexes]
        busy = await context.broker.coordinator.shard(request.group_id).delete_offsets(request.group_id, names)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=index, error_code=_outcome(context, topic, index, busy)
                    )
                    async for index in cooperatively(indexes)
                ],
            )
            for topic, indexes in topics.items()
        ]
    )


def _outcome(context: Context, topic: str, index: int, busy: Collection[str]) -> ErrorCode:
    try:
        check_topic(context, AclOperation.READ, topic)
        context.broker.topics.partition(topic, index)
    except KafkaError as error:
        return error.code
    return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic in busy else ErrorCode.NONE


API = Api(ApiKey.OFFSET_DELETE, 0, 0, handle, needs=(group(AclOperation.DELETE), each_topic(AclOperation.READ)))
