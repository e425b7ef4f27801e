"""ConsumerGroupDescribe (key 69), versions 0-1: epochs, members and assignments of groups of the consumer protocol.

Version 1 added the type of each member: one that uses the classic or the consumer protocol.
"""

from __future__ import annotations

from uuid import UUID

from skylog.protocol.schema import Int8, Int16, Int32, Message, field, message, struct


@message(api_key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest(Message):
    group_ids: list[str] = field("0+")
    include_authorized_operations: bool = field("0+", default=False)


@struct
class DescribedTopicPartitions:
    topic_id: UUID = field("0+")
    topic_name: str = field("0+")
    partitions: list[Int32] = field("0+")


@struct
class DescribedAssignment:
    topic_partitions: list[DescribedTopicPartitions] = field("0+", default_factory=list)


@struct
class DescribedConsumer:
    """`member_type` is 0 for the classic protocol, 1 for the consumer protocol, -1 if it is unknown."""

    member_id: str = field("0+")
    instance_id: str | None = field("0+", nullable="0+", default=None)
    rack_id: str | None = field("0+", nullable="0+", default=None)
    member_epoch: Int32 = field("0+")
    client_id: str = field("0+")
    client_host: str = field("0+")
    subscribed_topic_names: list[str] = field("0+")
    subscribed_topic_regex: str | None = field("0+", nullable="0+", default=None)
    assignment: DescribedAssignment = field("0+")
    target_assignment: DescribedAssignment = field("0+")
    member_type: Int8 = field("1+", default=-1)


@struct
class DescribedConsumerGroup:
    error_code: Int16 = field("0+", default=0)
    error_message: str | None = field("0+", nullable="0+", default=None)
    group_id: str = field("0+")
    group_state: str = field("0+", default="")
    group_epoch: Int32 = field("0+", default=0)
    assignment_epoch: Int32 = field("0+", default=0)
    assignor_name: str = field("0+", default="")
    members: list[DescribedConsumer] = field("0+", default_factory=list)
    authorized_operations: Int32 = field("0+", default=-(2**31))


@message(api_key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse(Message):
    throttle_time_ms: Int32 = field("0+", default=0)
    groups: list[DescribedConsumerGroup] = field("0+")
