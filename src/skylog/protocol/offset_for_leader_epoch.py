"""OffsetForLeaderEpoch (key 23), versions 2-4: the end offset of a leader epoch (KIP-101, KIP-320).

Version 3 added the replica id, to distinguish consumers from followers, 4 the compact encoding.
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Int64, Message, field, message, struct


@struct
class OffsetForLeaderPartition:
    """`current_leader_epoch` fences the request, `leader_epoch` is the requested one."""

    partition: Int32 = field("0+")
    current_leader_epoch: Int32 = field("2+", default=-1)
    leader_epoch: Int32 = field("0+")


@struct
class OffsetForLeaderTopic:
    topic: str = field("0+")
    partitions: list[OffsetForLeaderPartition] = field("0+")


@message(api_key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest(Message):
    """`replica_id` is the broker id of a follower, -1 for a consumer, -2 for unknown (version 2)."""

    replica_id: Int32 = field("3+", default=-2)
    topics: list[OffsetForLeaderTopic] = field("0+")


@struct
class EpochEndOffset:
    error_code: Int16 = field("0+", default=0)
    partition: Int32 = field("0+")
    leader_epoch: Int32 = field("1+", default=-1)
    end_offset: Int64 = field("0+", default=-1)


@struct
class OffsetForLeaderTopicResult:
    topic: str = field("0+")
    partitions: list[EpochEndOffset] = field("0+")


@message(api_key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse(Message):
    throttle_time_ms: Int32 = field("2+", default=0)
    topics: list[OffsetForLeaderTopicResult] = field("0+")
