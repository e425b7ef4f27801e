"""OffsetFetch (9), versions 1-9: how far groups are. What nobody has committed is answered with -1 and no error.

From version 2 on null asks for everything a group has committed, from 8 on for several groups at once. What is named
several times is answered once: the answer stays in proportion to what there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from skylog.broker.api import Api, Context
from skylog.broker.turn import in_turns
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

Wanted = list[tuple[str, list[int]]] | None
Row = tuple[int, CommittedOffset]
Found = list[tuple[str, list[Row]]]

_NOTHING = CommittedOffset(NO_OFFSET, NO_EPOCH, "", -1)


async def handle(context: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if context.version >= 8:
        groups = {group.group_id: group for group in request.groups}
        return OffsetFetchResponse(groups=[await _answer_group(context, group) for group in groups.values()])
    error, found = await _look_up(context, request.group_id, _wanted(request.topics))
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
                        error_code=error,
                    )
                    async for index, each in in_turns(rows)
                ],
            )
            for name, rows in found
        ],
    )


async def _answer_group(context: Context, group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    error, found = await _look_up(context, group.group_id, _wanted(group.topics))
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
                    )
                    async for index, each in in_turns(rows)
                ],
            )
            for name, rows in found
        ],
    )


def _wanted(topics: Sequence[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None) -> Wanted:
    """Each partition once, in the order of the request; None for all."""
    if topics is None:
        return None
    wanted: dict[str, dict[int, None]] = {}
    for topic in topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return [(name, list(indexes)) for name, indexes in wanted.items()]


async def _look_up(context: Context, group_id: str, wanted: Wanted) -> tuple[ErrorCode, Found]:
    coordinator = context.broker.coordinator
    error, offsets = ErrorCode.NONE, coordinator.groups.offsets_of(group_id)
    try:
        coordinator.check(group_id, may_be_empty=True)
    except KafkaError as refused:
        error, offsets = refused.code, {}
        if context.version >= 2:  # version 1 has nowhere but the partitions to put an error
            wanted = []
    if wanted is None:
        return error, _by_topic(offsets.items())
    return error, [
        (name, [(index, offsets.get(TopicPartition(name, index), _NOTHING)) async for index in in_turns(indexes)])
        for name, indexes in wanted
    ]


def _by_topic(offsets: Iterable[tuple[TopicPartition, CommittedOffset]]) -> Found:
    topics: dict[str, list[Row]] = {}
    for name, committed in offsets:
        topics.setdefault(name.topic, []).append((name.partition, committed))
    return list(topics.items())


API = Api(ApiKey.OFFSET_FETCH, 1, 9, handle, has_large_answers=True)
