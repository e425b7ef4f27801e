"""DescribeLogDirs (key 35), versions 0-4: the size of each partition's log, by data directory.

Version 2 added the compact encoding, 3 an error code for the whole response, 4 the size of the volume (KIP-827). 1
equals 0.
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Int64, Message, field, message, struct


@struct
class DescribableLogDirTopic:
    topic: str = field("0+")
    partitions: list[Int32] = field("0+")


@message(api_key=35, versions="0-4", flexible="2+")
class DescribeLogDirsRequest(Message):
    """Null requests all topics."""

    topics: list[DescribableLogDirTopic] | None = field("0+", nullable="0+")


@struct
class DescribeLogDirsPartition:
    partition_index: Int32 = field("0+")
    partition_size: Int64 = field("0+")
    offset_lag: Int64 = field("0+")
    is_future_key: bool = field("0+", default=False)


@struct
class DescribeLogDirsTopic:
    name: str = field("0+")
    partitions: list[DescribeLogDirsPartition] = field("0+")


@struct
class DescribeLogDirsResult:
    error_code: Int16 = field("0+", default=0)
    log_dir: str = field("0+")
    topics: list[DescribeLogDirsTopic] = field("0+")
    total_bytes: Int64 = field("4+", default=-1)
    usable_bytes: Int64 = field("4+", default=-1)


@message(api_key=35, versions="0-4", flexible="2+")
class DescribeLogDirsResponse(Message):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("3+", default=0)
    results: list[DescribeLogDirsResult] = field("0+")
