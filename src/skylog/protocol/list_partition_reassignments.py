"""ListPartitionReassignments (key 46), version 0: the partitions that are moving to other brokers (KIP-455)."""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Message, field, message, struct


@struct
class ListPartitionReassignmentsTopics:
    name: str = field("0+")
    partition_indexes: list[Int32] = field("0+")


@message(api_key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest(Message):
    """Null requests all topics."""

    timeout_ms: Int32 = field("0+", default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field("0+", nullable="0+", default=None)


@struct
class OngoingPartitionReassignment:
    partition_index: Int32 = field("0+")
    replicas: list[Int32] = field("0+")
    adding_replicas: list[Int32] = field("0+")
    removing_replicas: list[Int32] = field("0+")


@struct
class OngoingTopicReassignment:
    name: str = field("0+")
    partitions: list[OngoingPartitionReassignment] = field("0+")


@message(api_key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse(Message):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: str | None = field("0+", nullable="0+", default=None)
    topics: list[OngoingTopicReassignment] = field("0+", default_factory=list)
