"""DescribeTopicPartitions (key 75), version 0: topics and partitions in pages (KIP-966)."""

from __future__ import annotations

from uuid import UUID

from skylog.protocol.schema import ZERO_UUID, Int16, Int32, Message, field, message, struct


@struct
class TopicRequest:
    name: str = field("0+")


@struct
class Cursor:
    """The partition that a page begins with."""

    topic_name: str = field("0+")
    partition_index: Int32 = field("0+")


@message(api_key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest(Message):
    """An empty list requests all topics."""

    topics: list[TopicRequest] = field("0+")
    response_partition_limit: Int32 = field("0+", default=2000)
    cursor: Cursor | None = field("0+", nullable="0+", default=None)


@struct
class DescribeTopicPartitionsResponsePartition:
    """The two lists of eligible leaders may be null, but Java's admin client fails on that."""

    error_code: Int16 = field("0+", default=0)
    partition_index: Int32 = field("0+")
    leader_id: Int32 = field("0+")
    leader_epoch: Int32 = field("0+", default=-1)
    replica_nodes: list[Int32] = field("0+")
    isr_nodes: list[Int32] = field("0+")
    eligible_leader_replicas: list[Int32] | None = field("0+", nullable="0+", default=None)
    last_known_elr: list[Int32] | None = field("0+", nullable="0+", default=None)
    offline_replicas: list[Int32] = field("0+", default_factory=list)


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: Int16 = field("0+", default=0)
    name: str | None = field("0+", nullable="0+")
    topic_id: UUID = field("0+", default=ZERO_UUID)
    is_internal: bool = field("0+", default=False)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field("0+", default_factory=list)
    topic_authorized_operations: Int32 = field("0+", default=-(2**31))


@message(api_key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse(Message):
    throttle_time_ms: Int32 = field("0+", default=0)
    topics: list[DescribeTopicPartitionsResponseTopic] = field("0+")
    next_cursor: Cursor | None = field("0+", nullable="0+", default=None)
