"""DeleteRecords (21), versions 0-2: move the start of partitions forward; -1 is the high watermark.

Internal topics and topics that are only compacted lose no records. A partition that stands twice in a request is
answered once, for the last of its offsets. The new start is on disk before it is acknowledged, so records that were
deleted do not come back with a crash.
"""

from __future__ import annotations

import asyncio

from skylog.broker.api import Api, Context
from skylog.broker.internal_topics import check_may_change
from skylog.broker.turn import Turn
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


async def handle(context: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update({row.partition_index: row.offset for row in topic.partitions})
    turn = Turn()
    topics = []
    for name, offsets in wanted.items():
        results = []
        for index, offset in offsets.items():
            results.append(_delete(context, name, index, offset))
            await turn.give_way()
        topics.append(DeleteRecordsTopicResult(name=name, partitions=results))
    broker = context.broker
    await asyncio.get_running_loop().run_in_executor(broker.executor, broker.log_dir.checkpoint_writer())
    return DeleteRecordsResponse(topics=topics)


def _delete(context: Context, topic: str, index: int, offset: int) -> DeleteRecordsPartitionResult:
    try:
        check_may_change(topic, "lose records")
        partition = context.broker.partitions.get(topic, index)
        if "delete" not in partition.log.config.cleanup_policy:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"the cleanup.policy of '{topic}' is not to delete")
        if offset < -1:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"there is no offset {offset}")
        partition.log.delete_records(partition.high_watermark if offset == -1 else offset)
    except KafkaError as error:
        return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=error.code)
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=partition.log.log_start_offset)


API = Api(ApiKey.DELETE_RECORDS, 0, 2, handle)
