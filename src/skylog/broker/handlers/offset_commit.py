"""OffsetCommit (8), versions 2-9: a group writes down how far it is. Answered once that is in the offsets topic.

Generation -1 commits for a group that has no members: a consumer that assigns its partitions itself.
"""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.broker.turn import Turn
from skylog.errors import ErrorCode, KafkaError
from skylog.groups import CommittedOffset
from skylog.model import TopicPartition
from skylog.protocol.apis import ApiKey
from skylog.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

Commits = dict[TopicPartition, CommittedOffset]


async def handle(context: Context, request: OffsetCommitRequest) -> OffsetCommitResponse:
    coordinator, groups = context.broker.coordinator, context.broker.coordinator.groups
    try:
        commits, errors = await _take_all(context, request)
        records = [groups.offset_record(request.group_id, name, each) for name, each in commits.items()]
        _check(context, request)  # now, and not before the rows: they may have taken several turns
        if records:
            await coordinator.store(request.group_id, records)
            groups.commit(request.group_id, commits.items())
    except KafkaError as error:
        return await _response(request, {}, error.code)
    return await _response(request, errors, ErrorCode.NONE)


def _check(context: Context, request: OffsetCommitRequest) -> None:
    coordinator = context.broker.coordinator
    coordinator.check(request.group_id, may_be_empty=True)
    generation = request.generation_id_or_member_epoch
    group = coordinator.groups.find(request.group_id)
    if group is not None:
        group.check_commit(request.member_id, request.group_instance_id, generation, coordinator.now_ms())
    elif generation >= 0:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)


async def _take_all(context: Context, request: OffsetCommitRequest) -> tuple[Commits, dict[TopicPartition, ErrorCode]]:
    """The offsets to commit, and why others are not."""
    commits: Commits = {}
    errors: dict[TopicPartition, ErrorCode] = {}
    now_ms = context.broker.clock.now_ms()
    turn = Turn()
    for topic in request.topics:
        for row in topic.partitions:
            await turn.give_way()
            _take(context, topic.name, row, now_ms, commits, errors)
    return commits, errors


def _take(
    context: Context,
    topic: str,
    row: OffsetCommitRequestPartition,
    now_ms: int,
    commits: Commits,
    errors: dict[TopicPartition, ErrorCode],
) -> None:
    """Take one partition's offset, or note why not."""
    name = TopicPartition(topic, row.partition_index)
    metadata = row.committed_metadata or ""
    if len(metadata) > context.broker.config.groups.offset_metadata_max_bytes:
        errors[name] = ErrorCode.OFFSET_METADATA_TOO_LARGE
        return
    try:
        context.broker.partitions.get(topic, row.partition_index)
    except KafkaError as error:
        errors[name] = error.code
        return
    commits[name] = CommittedOffset(row.committed_offset, row.committed_leader_epoch, metadata, now_ms)


async def _response(
    request: OffsetCommitRequest, errors: dict[TopicPartition, ErrorCode], default: ErrorCode
) -> OffsetCommitResponse:
    turn = Turn()
    topics = []
    for topic in request.topics:
        rows = []
        for row in topic.partitions:
            await turn.give_way()
            error = errors.get(TopicPartition(topic.name, row.partition_index), default)
            rows.append(OffsetCommitResponsePartition(partition_index=row.partition_index, error_code=error))
        topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=rows))
    return OffsetCommitResponse(topics=topics)


API = Api(ApiKey.OFFSET_COMMIT, 2, 9, handle)
