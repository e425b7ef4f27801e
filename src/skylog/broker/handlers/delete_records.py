"""DeleteRecords (21), versions 0-2: move the log start offset of partitions forward; -1 is the high watermark.

Records of internal topics and of topics that are only compacted cannot be deleted. If a partition is repeated in a
request, its last offset counts, and it has one result. The new log start offset is on disk before it is acknowledged,
so deleted records do not reappear after a crash.

The leader moves its log start, and the followers take it over with their next fetch. The response waits until all live
replicas have done so, for the timeout of the request; then the result is REQUEST_TIMED_OUT, and the records are deleted
nevertheless. The low watermark in the response is the smallest log start offset of the live replicas.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

from skylog.broker.api import Api, Context
from skylog.broker.internal_topics import check_may_change
from skylog.broker.partition import Partition
from skylog.broker.security.access import check_topic
from skylog.broker.security.needs import each_topic
from skylog.broker.time_slice import TimeSlice
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from skylog.security.acl import AclOperation

logger = logging.getLogger(__name__)

RECHECK_S: Final = 0.5
"""How soon the death of a follower is noticed. Its fetches are noticed at once."""


class Deletion(NamedTuple):
    """Records that the leader has deleted in one partition, and the result to report."""

    partition: Partition
    leader_epoch: int
    offset: int
    result: DeleteRecordsPartitionResult


async def handle(context: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update({row.partition_index: row.offset for row in topic.partitions})
    time_slice = TimeSlice()
    topics, deletions = [], []
    for name, offsets in wanted.items():
        results = []
        for index, offset in offsets.items():
            outcome = _delete(context, name, index, offset)
            if isinstance(outcome, Deletion):
                deletions.append(outcome)
                outcome = outcome.result
            results.append(outcome)
            await time_slice.yield_if_over()
        topics.append(DeleteRecordsTopicResult(name=name, partitions=results))
    await _write(context, deletions)
    await _wait_for_followers(context, deletions, request.timeout_ms / 1000)
    return DeleteRecordsResponse(topics=topics)


def _delete(context: Context, topic: str, index: int, offset: int) -> Deletion | DeleteRecordsPartitionResult:
    try:
        check_topic(context, AclOperation.DELETE, topic)
        check_may_change(topic, "have records deleted")
        partition = context.broker.replicas.leader(topic, index)
        if "delete" not in partition.log.config.cleanup_policy:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"the cleanup.policy of '{topic}' does not contain delete")
        if offset < -1:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"invalid offset {offset}")
        start_offset = partition.high_watermark if offset == -1 else offset
        partition.delete_records(start_offset)
    except KafkaError as error:
        return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=error.code)
    result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=partition.log.log_start_offset)
    return Deletion(partition, partition.leader_epoch, start_offset, result)


async def _write(context: Context, deletions: Sequence[Deletion]) -> None:
    """Write the new log start offsets to disk."""
    broker = context.broker
    try:
        await asyncio.get_running_loop().run_in_executor(broker.executor, broker.log_dir.checkpoint_writer())
    except OSError as error:
        logger.error("the new log start offsets cannot be written: %s", error)
        for deletion in deletions:
            deletion.result.error_code = ErrorCode.KAFKA_STORAGE_ERROR


async def _wait_for_followers(context: Context, deletions: Sequence[Deletion], timeout_s: float) -> None:
    """Wait until the live replicas have deleted the same records. What is not done in time is late."""
    waiting = [each for each in deletions if not each.result.error_code]
    deadline = asyncio.get_running_loop().time() + timeout_s
    changed = asyncio.Event()
    for deletion in waiting:
        deletion.partition.observe(changed.set)
    try:
        while waiting := [each for each in waiting if not _is_settled(context, each)]:
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0:
                break
            changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, RECHECK_S)):
                    await changed.wait()
    finally:
        for deletion in deletions:
            deletion.partition.stop_observing(changed.set)
    for deletion in waiting:
        deletion.result.error_code = ErrorCode.REQUEST_TIMED_OUT


def _is_settled(context: Context, deletion: Deletion) -> bool:
    """Update the result of a deletion. Return whether it is final."""
    partition, result = deletion.partition, deletion.result
    try:
        partition.check_leads_in(deletion.leader_epoch)
    except KafkaError as error:
        result.low_watermark, result.error_code = -1, error.code
        return True
    result.low_watermark = partition.low_watermark(context.broker.metadata.image.brokers)
    return result.low_watermark >= deletion.offset


API = Api(ApiKey.DELETE_RECORDS, 0, 2, handle, may_wait=True, needs=(each_topic(AclOperation.DELETE),))
