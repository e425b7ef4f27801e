"""OffsetFetch (9), versions 1-9: the committed offsets of groups. Without a commit the offset is -1, with no error.

From version 2 on null requests all offsets of a group. From 8 on a request can have several groups. A group or
partition that is repeated has one result, so a small request cannot cause a huge response. From version 7 on a client
can require stable offsets: one that an open transaction may change is answered with UNSTABLE_OFFSET_COMMIT (KIP-447).
From 9 on the request names the member, whose epoch must be the current one in a consumer group (KIP-848).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from skylog.broker.api import Api, Context
from skylog.broker.security.access import check, may, sees
from skylog.broker.security.needs import each_group, each_topic
from skylog.broker.time_slice import cooperatively
from skylog.errors import ErrorCode, KafkaError
from skylog.groups import CommittedOffset
from skylog.model import NO_EPOCH, NO_OFFSET, TopicPartition
from skylog.protocol.apis import ApiKey
from skylog.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from skylog.security.acl import AclOperation, ResourceType

Wanted = list[tuple[str, list[int]]] | None
Row = tuple[int, CommittedOffset]
Found = list[tuple[str, list[Row]]]

_NO_COMMIT = CommittedOffset(NO_OFFSET, NO_EPOCH, "", -1)
_UNSTABLE = CommittedOffset(NO_OFFSET, NO_EPOCH, "", -1)
"""Stands for an offset that an open transaction may change. Compared by identity."""
_DENIED = CommittedOffset(NO_OFFSET, NO_EPOCH, "", -1)
"""Stands for an offset of a topic that the client may not describe, likewise."""
_ERRORS = {id(_UNSTABLE): ErrorCode.UNSTABLE_OFFSET_COMMIT, id(_DENIED): ErrorCode.TOPIC_AUTHORIZATION_FAILED}
_NOTHING: Mapping[TopicPartition, CommittedOffset] = {}


async def handle(context: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if context.version >= 8:
        groups = {group.group_id: group for group in request.groups}
        is_strict = request.require_stable
        return OffsetFetchResponse(groups=[await _group_result(context, group, is_strict) for group in groups.values()])
    error, found = await _look_up(context, request.group_id, _wanted(request.topics), request.require_stable)
    return OffsetFetchResponse(
        error_code=error,
        topics=[
            OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=each.offset,
                        committed_leader_epoch=each.leader_epoch,
                        metadata=each.metadata,
                        error_code=error or _row_error(each),
                    )
                    async for index, each in cooperatively(rows)
                ],
            )
            for name, rows in found
        ],
    )


async def _group_result(
    context: Context, group: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup:
    member = (group.member_id, group.member_epoch)
    error, found = await _look_up(context, group.group_id, _wanted(group.topics), require_stable, member)
    return OffsetFetchResponseGroup(
        group_id=group.group_id,
        error_code=error,
        topics=[
            OffsetFetchResponseTopics(
                name=name,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=each.offset,
                        committed_leader_epoch=each.leader_epoch,
                        metadata=each.metadata,
                        error_code=_row_error(each),
                    )
                    async for index, each in cooperatively(rows)
                ],
            )
            for name, rows in found
        ],
    )


def _wanted(topics: Sequence[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None) -> Wanted:
    """Return each partition once, in the order of the request, None for all partitions."""
    if topics is None:
        return None
    wanted: dict[str, dict[int, None]] = {}
    for topic in topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return [(name, list(indexes)) for name, indexes in wanted.items()]


async def _look_up(
    context: Context, group_id: str, wanted: Wanted, require_stable: bool, member: tuple[str | None, int] = (None, -1)
) -> tuple[ErrorCode, Found]:
    error = ErrorCode.NONE
    offsets: Mapping[TopicPartition, CommittedOffset]
    try:
        check(context, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
        shard = context.broker.coordinator.shard(group_id, may_be_empty=True)
        shard.check_fetch(group_id, *member)
        offsets = shard.offsets_of(group_id)
        if require_stable and (unstable := shard.unstable_offsets(group_id)):
            offsets = {**offsets, **dict.fromkeys(unstable, _UNSTABLE)}
    except KafkaError as refused:
        error, offsets = refused.code, {}
        if context.version >= 2:  # in version 1 the error is in the partitions
            wanted = []
    if wanted is None:
        return error, [
            row
            for row in _by_topic(offsets.items())
            if sees(context, AclOperation.DESCRIBE, ResourceType.TOPIC, row[0])
        ]
    return error, [
        (
            name,
            [(index, known.get(TopicPartition(name, index), absent)) async for index in cooperatively(indexes)],
        )
        for name, indexes in wanted
        for known, absent in [(offsets, _NO_COMMIT) if _may_describe(context, name) else (_NOTHING, _DENIED)]
    ]


def _row_error(committed: CommittedOffset) -> ErrorCode:
    return _ERRORS.get(id(committed), ErrorCode.NONE)


def _may_describe(context: Context, topic: str) -> bool:
    return may(context, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)


def _by_topic(offsets: Iterable[tuple[TopicPartition, CommittedOffset]]) -> Found:
    topics: dict[str, list[Row]] = {}
    for name, committed in offsets:
        topics.setdefault(name.topic, []).append((name.partition, committed))
    return list(topics.items())


API = Api(
    ApiKey.OFFSET_FETCH,
    1,
    9,
    handle,
    has_large_answers=True,
    needs=(each_group(AclOperation.DESCRIBE), each_topic(AclOperation.DESCRIBE)),
)
