"""ListOffsets (2), versions 1-9: the start offset, the end offset, and offsets by time.

Special timestamps are -1 (latest), -2 (earliest), -3 (the record with the largest timestamp, KIP-734), -4 (earliest
local, KIP-405, the same as -2 here) and -5 (latest in remote storage, for which the offset is -1: there is none). Any
other timestamp returns the first record at or after it, found inside its batch. A partition that is repeated in a
request has one result, INVALID_REQUEST as in Kafka.

No result is beyond the high watermark, or the last stable offset for read_committed. While the watermark of a new
leader has not reached the start of its epoch, a result that may be beyond it is OFFSET_NOT_AVAILABLE (KIP-207), before
version 5 LEADER_NOT_AVAILABLE.

A batch may have a million records, so records are searched in a thread, one partition after the other.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from skylog.broker.api import Api, Context
from skylog.broker.partition import Partition
from skylog.broker.security.access import check_topic
from skylog.broker.security.needs import each_topic
from skylog.broker.time_slice import TimeSlice
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from skylog.security.acl import AclOperation
from skylog.storage import Log, TimestampOffset, UncheckedError

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
_OFFSET_NOT_AVAILABLE_FROM: Final = 5


async def handle(context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    read_committed = request.isolation_level == 1
    time_slice = TimeSlice()
    topics = []
    for name, rows in _by_topic(request.topics).items():
        counts = Counter(row.partition_index for row in rows)
        results = []
        for row in {row.partition_index: row for row in rows}.values():
            await time_slice.yield_if_over()
            results.append(await _result(context, name, row, read_committed, counts[row.partition_index] > 1))
        topics.append(ListOffsetsTopicResponse(name=name, partitions=results))
    return ListOffsetsResponse(topics=topics)


def _by_topic(topics: list[ListOffsetsTopic]) -> dict[str, list[ListOffsetsPartition]]:
    rows: dict[str, list[ListOffsetsPartition]] = {}
    for topic in topics:
        rows.setdefault(topic.name, []).extend(topic.partitions)
    return rows


async def _result(
    context: Context, topic: str, row: ListOffsetsPartition, read_committed: bool, is_repeated: bool
) -> ListOffsetsPartitionResponse:
    try:
        check_topic(context, AclOperation.DESCRIBE, topic)
        if is_repeated:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{topic}-{row.partition_index} appears more than once")
        partition = context.broker.replicas.leader(topic, row.partition_index)
        partition.check_epoch(row.current_leader_epoch)
        timestamp, offset, leader_epoch = await _look_up(context, partition, row.timestamp, read_committed)
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.OFFSET_NOT_AVAILABLE and context.version < _OFFSET_NOT_AVAILABLE_FROM:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        return ListOffsetsPartitionResponse(partition_index=row.partition_index, error_code=code)
    return ListOffsetsPartitionResponse(
        partition_index=row.partition_index, timestamp=timestamp, offset=offset, leader_epoch=leader_epoch
    )


async def _look_up(
    context: Context, partition: Partition, timestamp: int, read_committed: bool
) -> tuple[int, int, int]:
    """Return timestamp, offset and leader epoch of the result, each -1 if there is none. Raises KafkaError."""
    log = partition.log
    found = None
    if timestamp == LATEST:
        _check_watermark(partition)
        return -1, _visible_end(partition, read_committed), partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.log_start_offset, partition.epoch_of(log.log_start_offset)
    if timestamp == MAX_TIMESTAMP:
        timestamp = log.max_timestamp()
        found = await _find_visible(context, partition, timestamp, read_committed) if timestamp >= 0 else None
    elif timestamp >= 0:
        found = await _find_visible(context, partition, timestamp, read_committed)
    elif timestamp != LATEST_TIERED:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"unknown special timestamp {timestamp}")
    return (found.timestamp, found.offset, found.leader_epoch) if found else (-1, -1, -1)


def _visible_end(partition: Partition, read_committed: bool) -> int:
    return partition.last_stable_offset if read_committed else partition.high_watermark


def _check_watermark(partition: Partition) -> None:
    if not partition.has_current_watermark:
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"the replicas of {partition.name} have not caught up yet")


async def _find_visible(
    context: Context, partition: Partition, timestamp: int, read_committed: bool
) -> TimestampOffset | None:
    """Find the first record at or after `timestamp`; None if clients may not see it yet. Raises KafkaError.

    The search runs while others append and leaders change. A follower may cut off what was found, and what is searched.
    """
    leader_epoch = partition.leader_epoch
    try:
        found = await _find_time(context, partition.log, timestamp)
    except KafkaError:
        partition.check_leads_in(leader_epoch)
        raise
    partition.check_leads_in(leader_epoch)
    if found is not None and found.offset < _visible_end(partition, read_committed):
        return found
    _check_watermark(partition)
    return None


async def _find_time(context: Context, log: Log, timestamp: int) -> TimestampOffset | None:
    """Find the first record at or after `timestamp`. Raises KafkaError."""
    loop, broker = asyncio.get_running_loop(), context.broker
    while True:
        try:
            for search in log.time_searches(timestamp):
                found = await loop.run_in_executor(broker.searcher, log.run_search, search)
                if found is not None:
                    return found
            return None
        except UncheckedError as unchecked:
            await broker.checks.run(log, unchecked)


API = Api(ApiKey.LIST_OFFSETS, 1, 9, handle, needs=(each_topic(AclOperation.DESCRIBE),))
