"""OffsetCommit (key 8), versions 2-9: commit the offsets of a group.

Version 3 added the throttle time, 5 removed the retention time, 6 added leader epochs (KIP-320), 7 static members
(KIP-345), 8 the compact encoding. 4 equals 3; 9 only allows the errors of the new group protocol (KIP-848).
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Int64, Message, field, message, struct


@struct
class OffsetCommitRequestPartition:
    partition_index: Int32 = field("0+")
    committed_offset: Int64 = field("0+")
    committed_leader_epoch: Int32 = field("6+", default=-1)
    committed_metadata: str | None = field("0+", nullable="0+", default="")


@struct
class OffsetCommitRequestTopic:
    name: str = field("0+")
    partitions: list[OffsetCommitRequestPartition] = field("0+")


@message(api_key=8, versions="2-9", flexible="8+")
class OffsetCommitRequest(Message):
    """Generation -1 with an empty member id is a commit from outside of the group's membership."""

    group_id: str = field("0+")
    generation_id_or_member_epoch: Int32 = field("1+", default=-1)
    member_id: str = field("1+", default="")
    group_instance_id: str | None = field("7+", nullable="7+", default=None)
    retention_time_ms: Int64 = field("2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = field("0+")


@struct
class OffsetCommitResponsePartition:
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+", default=0)


@struct
class OffsetCommitResponseTopic:
    name: str = field("0+")
    partitions: list[OffsetCommitResponsePartition] = field("0+")


@message(api_key=8, versions="2-9", flexible="8+")
class OffsetCommitResponse(Message):
    throttle_time_ms: Int32 = field("3+", default=0)
    topics: list[OffsetCommitResponseTopic] = field("0+")
