"""AlterPartitionReassignments (key 45), version 0: move partitions to other brokers, or cancel a move (KIP-455)."""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Message, field, message, struct


@struct
class ReassignablePartition:
    """No replicas (null) cancels a reassignment."""

    partition_index: Int32 = field("0+")
    replicas: list[Int32] | None = field("0+", nullable="0+", default=None)


@struct
class ReassignableTopic:
    name: str = field("0+")
    partitions: list[ReassignablePartition] = field("0+")


@message(api_key=45, versions="0", flexible="0+")
class AlterPartitionReassignmentsRequest(Message):
    timeout_ms: Int32 = field("0+", default=60000)
    topics: list[ReassignableTopic] = field("0+")


@struct
class ReassignablePartitionResponse:
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+", default=0)
    error_message: str | None = field("0+", nullable="0+", default=None)


@struct
class ReassignableTopicResponse:
    name: str = field("0+")
    partitions: list[ReassignablePartitionResponse] = field("0+")


@message(api_key=45, versions="0", flexible="0+")
class AlterPartitionReassignmentsResponse(Message):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: str | None = field("0+", nullable="0+", default=None)
    responses: list[ReassignableTopicResponse] = field("0+")
