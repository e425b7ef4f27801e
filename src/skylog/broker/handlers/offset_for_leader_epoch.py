"""OffsetForLeaderEpoch (23), versions 2-4: the end offset of a leader epoch, by which readers detect truncation."""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.broker.security.access import check_topic, sees
from skylog.broker.security.needs import each_topic
from skylog.broker.time_slice import cooperatively
from skylog.errors import KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from skylog.security.acl import AclOperation, ResourceType


async def handle(context: Context, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    asked: dict[str, dict[int, OffsetForLeaderPartition]] = {}
    async for topic in cooperatively(request.topics):
        asked.setdefault(topic.topic, {}).update({row.partition: row for row in topic.partitions})
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=name, partitions=[_result(context, name, row) async for row in cooperatively(rows.values())]
            )
            async for name, rows in cooperatively(asked.items())
        ]
    )


def _result(context: Context, topic: str, row: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        if not sees(context, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
            check_topic(context, AclOperation.DESCRIBE, topic)
        partition = context.broker.replicas.leader(topic, row.partition)
        partition.check_epoch(row.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(error_code=error.code, partition=row.partition)
    log = partition.log
    epoch, end_offset = log.epochs.end_offset_for(row.leader_epoch, log.log_end_offset, partition.leader_epoch)
    return EpochEndOffset(partition=row.partition, leader_epoch=epoch, end_offset=end_offset)


API = Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, handle, needs=(each_topic(AclOperation.DESCRIBE),))
