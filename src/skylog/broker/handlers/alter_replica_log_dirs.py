"""AlterReplicaLogDirs (34), versions 1-2: move logs to another data directory.

Each broker has one data directory, and all its logs are in it. Any other directory is LOG_DIR_NOT_FOUND. A partition
without a replica on this broker is REPLICA_NOT_AVAILABLE, as in Kafka.
"""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.broker.security.needs import cluster
from skylog.broker.time_slice import cooperatively
from skylog.broker.unique_names import unique_by_topic
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from skylog.protocol.apis import ApiKey
from skylog.security.acl import AclOperation


async def handle(context: Context, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    wanted: dict[str, dict[int, str]] = {}  # if a partition is repeated, its last directory counts, as in Kafka
    for directory in request.dirs:
        for topic in directory.topics:
            wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, directory.path))
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic,
                partitions=[_result(context, topic, index, path) async for index, path in cooperatively(paths.items())],
            )
            async for topic, paths in cooperatively(wanted.items())
        ]
    )


def _refuse(request: AlterReplicaLogDirsRequest, code: ErrorCode) -> AlterReplicaLogDirsResponse:
    asked = unique_by_topic((topic.name, topic.partitions) for each in request.dirs for topic in each.topics)
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic,
                partitions=[AlterReplicaLogDirPartitionResult(partition_index=each, error_code=code) for each in rows],
            )
            for topic, rows in asked.items()
        ]
    )


def _result(context: Context, topic: str, index: int, path: str) -> AlterReplicaLogDirPartitionResult:
    broker = context.broker
    try:
        if path != str(broker.log_dir.path):
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"the only data directory is {broker.log_dir.path}")
        broker.replicas.readable(topic, index)
    except KafkaError as error:
        is_elsewhere = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        code = ErrorCode.REPLICA_NOT_AVAILABLE if is_elsewhere else error.code
        return AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
    return AlterReplicaLogDirPartitionResult(partition_index=index)


API = Api(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, handle, needs=(cluster(AclOperation.ALTER),), refuse=_refuse)
