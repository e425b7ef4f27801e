"""OffsetDelete (key 47), version 0: delete a group's offsets of single partitions (KIP-496).

It has no version with the compact encoding.
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Message, field, message, struct


@struct
class OffsetDeleteRequestPartition:
    partition_index: Int32 = field("0+")


@struct
class OffsetDeleteRequestTopic:
    name: str = field("0+")
    partitions: list[OffsetDeleteRequestPartition] = field("0+")


@message(api_key=47, versions="0", flexible="none")
class OffsetDeleteRequest(Message):
    group_id: str = field("0+")
    topics: list[OffsetDeleteRequestTopic] = field("0+")


@struct
class OffsetDeleteResponsePartition:
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+", default=0)


@struct
class OffsetDeleteResponseTopic:
    name: str = field("0+")
    partitions: list[OffsetDeleteResponsePartition] = field("0+")


@message(api_key=47, versions="0", flexible="none")
class OffsetDeleteResponse(Message):
    error_code: Int16 = field("0+", default=0)
    throttle_time_ms: Int32 = field("0+", default=0)
    topics: list[OffsetDeleteResponseTopic] = field("0+", default_factory=list)
