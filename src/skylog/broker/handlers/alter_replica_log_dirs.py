"""AlterReplicaLogDirs (34), versions 1-2: where the logs of partitions lie.

There is one data directory. A log that is wanted there is there already; any other directory is LOG_DIR_NOT_FOUND.
"""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.broker.turn import in_turns
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from skylog.protocol.apis import ApiKey


async def handle(context: Context, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    wanted: dict[str, dict[int, str]] = {}  # where a partition is named twice, the last directory counts, as in Kafka
    for directory in request.dirs:
        for topic in directory.topics:
            wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, directory.path))
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic,
                partitions=[_result(context, topic, index, path) async for index, path in in_turns(paths.items())],
            )
            async for topic, paths in in_turns(wanted.items())
        ]
    )


def _result(context: Context, topic: str, index: int, path: str) -> AlterReplicaLogDirPartitionResult:
    broker = context.broker
    try:
        if path != str(broker.log_dir.path):
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"the only data directory is {broker.log_dir.path}")
        broker.partitions.get(topic, index)
    except KafkaError as error:
        return AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error.code)
    return AlterReplicaLogDirPartitionResult(partition_index=index)


API = Api(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, handle)
