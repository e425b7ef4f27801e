"""ListOffsets (key 2), versions 1-9: the offset of a partition at a time, or at its start or end.

Version 2 added the isolation level, 4 leader epochs (KIP-320), 6 the compact encoding. 3 and 5 change nothing; 7, 8 and
9 only add special timestamps: the record with the largest timestamp (KIP-734), the start of the local log (KIP-405),
the end of the tiered log (KIP-1005).
"""

from __future__ import annotations

from skylog.protocol.schema import Int8, Int16, Int32, Int64, Message, field, message, struct


@struct
class ListOffsetsPartition:
    """`timestamp` is a time in milliseconds, or -1 for the end, -2 for the start, -3 for the largest timestamp."""

    partition_index: Int32 = field("0+")
    current_leader_epoch: Int32 = field("4+", default=-1)
    timestamp: Int64 = field("0+")


@struct
class ListOffsetsTopic:
    name: str = field("0+")
    partitions: list[ListOffsetsPartition] = field("0+")


@message(api_key=2, versions="1-9", flexible="6+")
class ListOffsetsRequest(Message):
    """`replica_id` is -1 for a consumer; `isolation_level` 1 means read_committed."""

    replica_id: Int32 = field("0+", default=-1)
    isolation_level: Int8 = field("2+", default=0)
    topics: list[ListOffsetsTopic] = field("0+")


@struct
class ListOffsetsPartitionResponse:
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+", default=0)
    timestamp: Int64 = field("1+", default=-1)
    offset: Int64 = field("1+", default=-1)
    leader_epoch: Int32 = field("4+", default=-1)


@struct
class ListOffsetsTopicResponse:
    name: str = field("0+")
    partitions: list[ListOffsetsPartitionResponse] = field("0+")


@message(api_key=2, versions="1-9", flexible="6+")
class ListOffsetsResponse(Message):
    throttle_time_ms: Int32 = field("2+", default=0)
    topics: list[ListOffsetsTopicResponse] = field("0+")
