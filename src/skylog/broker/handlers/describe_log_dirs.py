"""DescribeLogDirs (35), versions 0-4: the data directory, the size of each log in it, and the room that is left."""

from __future__ import annotations

import shutil
from collections.abc import Iterable

from skylog.broker.api import Api, Context
from skylog.broker.partition import Partition
from skylog.broker.turn import in_turns
from skylog.protocol.apis import ApiKey
from skylog.protocol.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


async def handle(context: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    broker = context.broker
    if request.topics is None:
        found: Iterable[Partition] = broker.partitions.all()
    else:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
        found = [partition for partition in broker.partitions.all() if partition.name in wanted]
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    async for partition in in_turns(found):
        row = DescribeLogDirsPartition(
            partition_index=partition.name.partition, partition_size=partition.log.size_bytes, offset_lag=0
        )
        topics.setdefault(partition.name.topic, []).append(row)
    usage = shutil.disk_usage(broker.log_dir.path)
    result = DescribeLogDirsResult(
        log_dir=str(broker.log_dir.path),
        topics=[DescribeLogDirsTopic(name=name, partitions=rows) for name, rows in topics.items()],
        total_bytes=usage.total,
        usable_bytes=usage.free,
    )
    return DescribeLogDirsResponse(results=[result])


API = Api(ApiKey.DESCRIBE_LOG_DIRS, 0, 4, handle, has_large_answers=True)
