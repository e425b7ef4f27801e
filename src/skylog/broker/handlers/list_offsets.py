"""ListOffsets (2), versions 1-9: the start, the end, and the offset at a time.

Timestamps -1 (latest), -2 (earliest), -3 (the largest timestamp, KIP-734) and -4 (the earliest that is local, KIP-405,
here the same as -2) are questions; others are times, answered by the first record at or after them, looked up inside
its batch. -5 (the latest in remote storage) has no answer: there is none. A partition that is named several times is
answered once, with INVALID_REQUEST as in Kafka.

A batch may hold a million records, so records are looked up in a thread, one partition after the other.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from skylog.broker.api import Api, Context
from skylog.broker.partition import Partition
from skylog.broker.turn import Turn
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
from skylog.storage import Log, TimestampOffset, UncheckedError

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5


async def handle(context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    read_committed = request.isolation_level == 1
    turn = Turn()
    topics = []
    for name, rows in _by_topic(request.topics).items():
        counts = Counter(row.partition_index for row in rows)
        answers = []
        for row in {row.partition_index: row for row in rows}.values():
            await turn.give_way()
            answers.append(await _answer(context, name, row, read_committed, counts[row.partition_index] > 1))
        topics.append(ListOffsetsTopicResponse(name=name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def _by_topic(topics: list[ListOffsetsTopic]) -> dict[str, list[ListOffsetsPartition]]:
    rows: dict[str, list[ListOffsetsPartition]] = {}
    for topic in topics:
        rows.setdefault(topic.name, []).extend(topic.partitions)
    return rows


async def _answer(
    context: Context, topic: str, row: ListOffsetsPartition, read_committed: bool, is_repeated: bool
) -> ListOffsetsPartitionResponse:
    try:
        if is_repeated:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{topic}-{row.partition_index} is named several times")
        partition = context.broker.partitions.get(topic, row.partition_index)
        partition.check_epoch(row.current_leader_epoch)
        timestamp, offset, leader_epoch = await _look_up(context, partition, row.timestamp, read_committed)
    except KafkaError as error:
        return ListOffsetsPartitionResponse(partition_index=row.partition_index, error_code=error.code)
    return ListOffsetsPartitionResponse(
        partition_index=row.partition_index, timestamp=timestamp, offset=offset, leader_epoch=leader_epoch
    )


async def _look_up(
    context: Context, partition: Partition, timestamp: int, read_committed: bool
) -> tuple[int, int, int]:
    """Timestamp, offset and leader epoch of the answer; -1 for each that there is none of."""
    log = partition.log
    found = None
    if timestamp == LATEST:
        end = partition.last_stable_offset if read_committed else partition.high_watermark
        return -1, end, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.log_start_offset, partition.epoch_of(log.log_start_offset)
    if timestamp == MAX_TIMESTAMP:
        timestamp = log.max_timestamp()
        found = await _find_time(context, log, timestamp) if timestamp >= 0 else None
    elif timestamp >= 0:
        found = await _find_time(context, log, timestamp)
    elif timestamp != LATEST_TIERED:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} asks for nothing that is known")
    return (found.timestamp, found.offset, found.leader_epoch) if found else (-1, -1, -1)


async def _find_time(context: Context, log: Log, timestamp: int) -> TimestampOffset | None:
    """The first record at or after `timestamp`. Raises KafkaError."""
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


API = Api(ApiKey.LIST_OFFSETS, 1, 9, handle)
