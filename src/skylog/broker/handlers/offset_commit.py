"""OffsetCommit (8), versions 2-9: commit offsets of a group. The response waits until they are in the offsets topic.

Generation -1 commits for a group without members, such as a consumer that assigns its partitions itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from skylog.broker.api import Api, Context
from skylog.broker.group_shard import MemberId
from skylog.broker.security.access import check_topic
from skylog.broker.security.needs import each_topic, group
from skylog.broker.time_slice import TimeSlice
from skylog.errors import ErrorCode, KafkaError
from skylog.groups import CommittedOffset
from skylog.model import TopicPartition
from skylog.protocol.apis import ApiKey
from skylog.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from skylog.protocol.txn_offset_commit import TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic
from skylog.security.acl import AclOperation

Offsets = dict[TopicPartition, CommittedOffset]
Errors = dict[TopicPartition, ErrorCode]
RequestTopics = Sequence[OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic]
T = TypeVar("T")


async def handle(context: Context, request: OffsetCommitRequest) -> OffsetCommitResponse:
    member = MemberId(request.member_id, request.group_instance_id, request.generation_id_or_member_epoch)
    try:
        offsets, errors = await validate_all(context, request.topics)
        shard = context.broker.coordinator.shard(request.group_id, may_be_empty=True)
        await shard.commit_offsets(
            request.group_id,
            member,
            offsets,
            knows_epochs=context.version >= 9,
            connection=context.session.number,
        )
    except KafkaError as error:
        return await _response(request, {}, error.code)
    return await _response(request, errors, ErrorCode.NONE)


async def validate_all(context: Context, topics: RequestTopics) -> tuple[Offsets, Errors]:
    """Return the offsets to commit, and the errors of the others."""
    offsets: Offsets = {}
    errors: Errors = {}
    now_ms = context.broker.clock.now_ms()
    time_slice = TimeSlice()
    for topic in topics:
        for row in topic.partitions:
            await time_slice.yield_if_over()
            _validate(context, topic.name, row, now_ms, offsets, errors)
    return offsets, errors


def _validate(
    context: Context,
    topic: str,
    row: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    now_ms: int,
    offsets: Offsets,
    errors: Errors,
) -> None:
    """Add one partition to `offsets`, or to `errors` if it is not valid."""
    name = TopicPartition(topic, row.partition_index)
    metadata = row.committed_metadata or ""
    if len(metadata) > context.broker.config.groups.offset_metadata_max_bytes:
        errors[name] = ErrorCode.OFFSET_METADATA_TOO_LARGE
        return
    try:
        check_topic(context, AclOperation.READ, topic)
        context.broker.topics.partition(topic, row.partition_index)
    except KafkaError as error:
        errors[name] = error.code
        return
    offsets[name] = CommittedOffset(row.committed_offset, row.committed_leader_epoch, metadata, now_ms)


async def response_topics(
    topics: RequestTopics, errors: Errors, default: ErrorCode, new_topic: Callable[..., T], new_row: Callable[..., Any]
) -> list[T]:
    """Return the rows of a response: the error of each partition, by default `default`."""
    time_slice = TimeSlice()
    found = []
    for topic in topics:
        rows = []
        for row in topic.partitions:
            await time_slice.yield_if_over()
            error = errors.get(TopicPartition(topic.name, row.partition_index), default)
            rows.append(new_row(partition_index=row.partition_index, error_code=error))
        found.append(new_topic(name=topic.name, partitions=rows))
    return found


async def _refuse(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    return await _response(request, {}, code)


async def _response(request: OffsetCommitRequest, errors: Errors, default: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=await response_topics(
            request.topics, errors, default, OffsetCommitResponseTopic, OffsetCommitResponsePartition
        )
    )


API = Api(
    ApiKey.OFFSET_COMMIT, 2, 9, handle, needs=(group(AclOperation.READ), each_topic(AclOperation.READ)), refuse=_refuse
)
