"""DeleteRecords (key 21), versions 0-2: move the start of partitions forward.

Version 2 added the compact encoding; 1 equals 0.
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Int64, Message, field, message, struct


@struct
class DeleteRecordsPartition:
    """`offset` becomes the log start offset; -1 is the high watermark."""

    partition_index: Int32 = field("0+")
    offset: Int64 = field("0+")


@struct
class DeleteRecordsTopic:
    name: str = field("0+")
    partitions: list[DeleteRecordsPartition] = field("0+")


@message(api_key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest(Message):
    topics: list[DeleteRecordsTopic] = field("0+")
    timeout_ms: Int32 = field("0+")


@struct
class DeleteRecordsPartitionResult:
    partition_index: Int32 = field("0+")
    low_watermark: Int64 = field("0+")
    error_code: Int16 = field("0+", default=0)


@struct
class DeleteRecordsTopicResult:
    name: str = field("0+")
    partitions: list[DeleteRecordsPartitionResult] = field("0+")


@message(api_key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse(Message):
    throttle_time_ms: Int32 = field("0+", default=0)
    topics: list[DeleteRecordsTopicResult] = field("0+")
