"""OffsetDelete (47), version 0: forget committed offsets of partitions that no member of the group reads (KIP-496)."""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.errors import ErrorCode, KafkaError
from skylog.model import TopicPartition
from skylog.protocol.apis import ApiKey
from skylog.protocol.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def handle(context: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    coordinator = context.broker.coordinator
    groups = coordinator.groups
    try:
        coordinator.check(request.group_id)
        group = groups.find(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        busy = group.subscribed_topics()
        if busy is None:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        known = groups.offsets_of(request.group_id)
        names = [
            name
            for topic in request.topics
            for row in topic.partitions
            if (name := TopicPartition(topic.name, row.partition_index)) in known and topic.name not in busy
        ]
        await coordinator.forget_offsets(request.group_id, names)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=row.partition_index,
                        error_code=_outcome(context, topic.name, row.partition_index, busy),
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _outcome(context: Context, topic: str, index: int, busy: set[str]) -> ErrorCode:
    try:
        context.broker.partitions.get(topic, index)
    except KafkaError as error:
        return error.code
    return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic in busy else ErrorCode.NONE


API = Api(ApiKey.OFFSET_DELETE, 0, 0, handle)
