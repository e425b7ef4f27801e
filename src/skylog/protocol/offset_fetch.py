"""OffsetFetch (key 9), versions 1-9: the committed offsets of a group.

Version 2 added null for all topics and an error code for the whole response, 3 the throttle time, 5 leader epochs
(KIP-320), 6 the compact encoding, 7 the option to require stable offsets, which no open transaction can change
(KIP-447), 8 several groups in one request (KIP-709), with other fields in request and response, 9 the member and its
epoch (KIP-848). 4 equals 3.

The response for a group or partition without a commit is offset -1 and no error.
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Int64, Message, field, message, struct


@struct
class OffsetFetchRequestTopic:
    name: str = field("0-7")
    partition_indexes: list[Int32] = field("0-7")


@struct
class OffsetFetchRequestTopics:
    name: str = field("8+")
    partition_indexes: list[Int32] = field("8+")


@struct
class OffsetFetchRequestGroup:
    """Null requests all topics."""

    group_id: str = field("8+")
    member_id: str | None = field("9+", nullable="9+", default=None)
    member_epoch: Int32 = field("9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = field("8+", nullable="8+")


@message(api_key=9, versions="1-9", flexible="6+")
class OffsetFetchRequest(Message):
    """One group in the fields themselves up to version 7, a list of `groups` from 8 on."""

    group_id: str = field("0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = field("0-7", nullable="2-7", default_factory=list)
    groups: list[OffsetFetchRequestGroup] = field("8+", default_factory=list)
    require_stable: bool = field("7+", default=False)


@struct
class OffsetFetchResponsePartition:
    partition_index: Int32 = field("0-7")
    committed_offset: Int64 = field("0-7")
    committed_leader_epoch: Int32 = field("5-7", default=-1)
    metadata: str | None = field("0-7", nullable="0-7", default="")
    error_code: Int16 = field("0-7", default=0)


@struct
class OffsetFetchResponseTopic:
    name: str = field("0-7")
    partitions: list[OffsetFetchResponsePartition] = field("0-7")


@struct
class OffsetFetchResponsePartitions:
    partition_index: Int32 = field("8+")
    committed_offset: Int64 = field("8+")
    committed_leader_epoch: Int32 = field("8+", default=-1)
    metadata: str | None = field("8+", nullable="8+", default="")
    error_code: Int16 = field("8+", default=0)


@struct
class OffsetFetchResponseTopics:
    name: str = field("8+")
    partitions: list[OffsetFetchResponsePartitions] = field("8+")


@struct
class OffsetFetchResponseGroup:
    group_id: str = field("8+")
    topics: list[OffsetFetchResponseTopics] = field("8+")
    error_code: Int16 = field("8+", default=0)


@message(api_key=9, versions="1-9", flexible="6+")
class OffsetFetchResponse(Message):
    """One group in the fields themselves up to version 7, a list of `groups` from 8 on."""

    throttle_time_ms: Int32 = field("3+", default=0)
    topics: list[OffsetFetchResponseTopic] = field("0-7", default_factory=list)
    error_code: Int16 = field("2-7", default=0)
    groups: list[OffsetFetchResponseGroup] = field("8+", default_factory=list)
