"""CreatePartitions (key 37), versions 0-3: add partitions to topics.

Version 2 added the compact encoding. 1 equals 0; 3 only allows a throttling error.
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Message, field, message, struct


@struct
class CreatePartitionsAssignment:
    broker_ids: list[Int32] = field("0+")


@struct
class CreatePartitionsTopic:
    """`count` is the new total; `assignments`, where given, has one entry per new partition."""

    name: str = field("0+")
    count: Int32 = field("0+")
    assignments: list[CreatePartitionsAssignment] | None = field("0+", nullable="0+", default=None)


@message(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest(Message):
    topics: list[CreatePartitionsTopic] = field("0+")
    timeout_ms: Int32 = field("0+")
    validate_only: bool = field("0+", default=False)


@struct
class CreatePartitionsTopicResult:
    name: str = field("0+")
    error_code: Int16 = field("0+", default=0)
    error_message: str | None = field("0+", nullable="0+", default=None)


@message(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse(Message):
    throttle_time_ms: Int32 = field("0+", default=0)
    results: list[CreatePartitionsTopicResult] = field("0+")
