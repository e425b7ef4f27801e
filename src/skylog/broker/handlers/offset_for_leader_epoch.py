"""OffsetForLeaderEpoch (23), versions 2-4: where an epoch's records end, so that a reader finds what was cut."""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.errors import KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(context: Context, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_answer(context, topic.topic, row) for row in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _answer(context: Context, topic: str, row: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = context.broker.partitions.get(topic, row.partition)
        partition.check_epoch(row.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(error_code=error.code, partition=row.partition)
    if row.leader_epoch == partition.leader_epoch:
        return EpochEndOffset(
            partition=row.partition, leader_epoch=row.leader_epoch, end_offset=partition.log.log_end_offset
        )
    epoch, end_offset = partition.log.epochs.end_offset_for(row.leader_epoch, partition.log.log_end_offset)
    return EpochEndOffset(partition=row.partition, leader_epoch=epoch, end_offset=end_offset)


API = Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, handle)
