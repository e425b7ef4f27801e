"""AlterReplicaLogDirs (key 34), versions 1-2: move the logs of partitions into other data directories (KIP-113).

Version 2 added the compact encoding.
"""

from __future__ import annotations

from skylog.protocol.schema import Int16, Int32, Message, field, message, struct


@struct
class AlterReplicaLogDirTopic:
    name: str = field("0+")
    partitions: list[Int32] = field("0+")


@struct
class AlterReplicaLogDir:
    path: str = field("0+")
    topics: list[AlterReplicaLogDirTopic] = field("0+")


@message(api_key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest(Message):
    dirs: list[AlterReplicaLogDir] = field("0+")


@struct
class AlterReplicaLogDirPartitionResult:
    partition_index: Int32 = field("0+")
    error_code: Int16 = field("0+", default=0)


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: str = field("0+")
    partitions: list[AlterReplicaLogDirPartitionResult] = field("0+")


@message(api_key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsResponse(Message):
    throttle_time_ms: Int32 = field("0+", default=0)
    results: list[AlterReplicaLogDirTopicResult] = field("0+")
