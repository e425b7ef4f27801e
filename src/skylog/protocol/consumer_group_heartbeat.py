"""ConsumerGroupHeartbeat (key 68), versions 0-1: join, stay in and leave a group of the consumer protocol (KIP-848).

Version 1 added subscriptions by regular expression, and member ids that the client generates (KIP-1082).
"""

from __future__ import annotations

from uuid import UUID

from skylog.protocol.schema import Int16, Int32, Message, field, message, struct


@struct
class OwnedTopicPartitions:
    topic_id: UUID = field("0+")
    partitions: list[Int32] = field("0+")


@message(api_key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest(Message):
    """Epoch 0 joins, -1 leaves, -2 leaves for a static member that will return.

    A field that is null or -1 has not changed since the last heartbeat.
    """

    group_id: str = field("0+")
    member_id: str = field("0+")
    member_epoch: Int32 = field("0+")
    instance_id: str | None = field("0+", nullable="0+", default=None)
    rack_id: str | None = field("0+", nullable="0+", default=None)
    rebalance_timeout_ms: Int32 = field("0+", default=-1)
    subscribed_topic_names: list[str] | None = field("0+", nullable="0+", default=None)
    subscribed_topic_regex: str | None = field("1+", nullable="1+", default=None)
    server_assignor: str | None = field("0+", nullable="0+", default=None)
    topic_partitions: list[OwnedTopicPartitions] | None = field("0+", nullable="0+", default=None)


@struct
class AssignedTopicPartitions:
    topic_id: UUID = field("0+")
    partitions: list[Int32] = field("0+")


@struct
class HeartbeatAssignment:
    topic_partitions: list[AssignedTopicPartitions] = field("0+")


@message(api_key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse(Message):
    """`assignment` is null if it has not changed. It has the partitions that the member may read now."""

    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: str | None = field("0+", nullable="0+", default=None)
    member_id: str | None = field("0+", nullable="0+", default=None)
    member_epoch: Int32 = field("0+", default=0)
    heartbeat_interval_ms: Int32 = field("0+", default=0)
    assignment: HeartbeatAssignment | None = field("0+", nullable="0+", default=None)
