"""TxnOffsetCommit (key 28), versions 0-4: commit offsets of a group as part of a transaction.

Version 2 added leader epochs (KIP-320), 3 the compact encoding and the member, whose generation is checked (KIP-447).
1 equals 0; 4 only allows TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Int64, Message, field, message, struct


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: Int32 = field("0+")
    committed_offset: Int64 = field("0+")
    committed_leader_epoch: Int32 = field("2+", default=-1)
    committed_metadata: str | None = field("0+", nullable="0+", default="")


@struct
class TxnOffsetCommitRequestTopic:
    name: str = field("0+")
    partitions: list[TxnOffsetCommitRequestPartition] = field("0+")


@message(api_key=28, versions="0-4", flexible="3+")
class TxnOffsetCommitRequest(Message):
    transactional_id: str = field("0+")
    group_id: str = field("0+")
    producer_id: Int64 = field("0+")
    producer_epoch: Int16 = field("0+")
    generation_id: Int32 = field("3+", default=-1)
    member_id: str = field("3+", default="")
    group_instance_id: str | None = field("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field("0+")


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+", default=0)


@struct
class TxnOffsetCommitResponseTopic:
    name: str = field("0+")
    partitions: list[TxnOffsetCommitResponsePartition] = field("0+")


@message(api_key=28, versions="0-4", flexible="3+")
class TxnOffsetCommitResponse(Message):
    throttle_time_ms: Int32 = field("0+", default=0)
    topics: list[TxnOffsetCommitResponseTopic] = field("0+")
