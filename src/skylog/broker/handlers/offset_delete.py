"""OffsetDelete (47), version 0: forget committed offsets of partitions that no member of the group reads (KIP-496)."""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.errors import ErrorCode, KafkaError
from skylog.groups.subscription import subscribed_topics
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
        if group is None and not groups.offsets_of(request.group_id):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        busy = subscribed_topics(group) if group is not None and group.members else set()
        if busy is None:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        known = groups.offsets_of(request.group_id)
        names = [
            name
            for topic in request.topics
            for row in topic.partitions
            if (name := TopicPartition(topic.name, row.partition_index)) in known and topic.name not in busy
        ]
        if names:
            records = [groups.offset_record(request.group_id, name, None) for name in names]
            await coordinator.store(request.group_id, records)
            groups.remove_offsets(request.group_id, names)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=row.partition_index,
                        error_code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic.name in busy else ErrorCode.NONE,
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = Api(ApiKey.OFFSET_DELETE, 0, 0, handle)
