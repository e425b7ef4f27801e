"""ListOffsets (2), versions 1-9: the start, the end, and the offset at a time.

Timestamps -1 (latest), -2 (earliest), -3 (the largest timestamp, KIP-734) and -4 (the earliest that is local, KIP-405,
here the same as -2) are questions; others are times, answered by the first record at or after them, looked up inside
its batch. -5 (the latest in remote storage) has no answer: there is none.
"""

from __future__ import annotations

from typing import Final

from skylog.broker.api import Api, Context
from skylog.broker.partition import Partition
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5


def handle(context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    read_committed = request.isolation_level == 1
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_answer(context, topic.name, row, read_committed) for row in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _answer(
    context: Context, topic: str, row: ListOffsetsPartition, read_committed: bool
) -> ListOffsetsPartitionResponse:
    try:
        partition = context.broker.partitions.get(topic, row.partition_index)
        partition.check_epoch(row.current_leader_epoch)
        timestamp, offset, leader_epoch = _look_up(partition, row.timestamp, read_committed)
    except KafkaError as error:
        return ListOffsetsPartitionResponse(partition_index=row.partition_index, error_code=error.code)
    return ListOffsetsPartitionResponse(
        partition_index=row.partition_index, timestamp=timestamp, offset=offset, leader_epoch=leader_epoch
    )


def _look_up(partition: Partition, timestamp: int, read_committed: bool) -> tuple[int, int, int]:
    """Timestamp, offset and leader epoch of the answer; -1 for each that there is none of."""
    log = partition.log
    match timestamp:
        case -1:
            end = partition.last_stable_offset if read_committed else partition.high_watermark
            return -1, end, partition.leader_epoch
        case -2 | -4:
            return -1, log.log_start_offset, log.epochs.epoch_of(log.log_start_offset)
        case -3:
            found = log.find_max_timestamp()
        case -5:
            found = None
        case _ if timestamp < 0:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} asks for nothing that is known")
        case _:
            found = log.find_time(timestamp)
    return (found.timestamp, found.offset, found.leader_epoch) if found else (-1, -1, -1)


API = Api(ApiKey.LIST_OFFSETS, 1, 9, handle)
