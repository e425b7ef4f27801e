"""DescribeLogDirs (35), versions 0-4: the data directory, the size of each log in it, and the free space."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable

from skylog.broker.api import Api, Context
from skylog.broker.partition import Partition
from skylog.broker.security.needs import cluster
from skylog.broker.time_slice import cooperatively
from skylog.protocol.apis import ApiKey
from skylog.protocol.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from skylog.security.acl import AclOperation


async def handle(context: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    broker = context.broker
    if request.topics is None:
        found: Iterable[Partition] = broker.replicas.all()
    else:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
        found = [partition for partition in broker.replicas.all() if partition.name in wanted]
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    async for partition in cooperatively(found):
        row = DescribeLogDirsPartition(
            partition_index=partition.name.partition, partition_size=partition.log.size_bytes, offset_lag=0
        )
        topics.setdefault(partition.name.topic, []).append(row)
    loop = asyncio.get_running_loop()
    usage = await loop.run_in_executor(broker.executor, shutil.disk_usage, broker.log_dir.path)
    result = DescribeLogDirsResult(
        log_dir=str(broker.log_dir.path),
        topics=[DescribeLogDirsTopic(name=name, partitions=rows) for name, rows in topics.items()],
        total_bytes=usage.total,
        usable_bytes=usage.free,
    )
    return DescribeLogDirsResponse(results=[result])


API = Api(
    ApiKey.DESCRIBE_LOG_DIRS,
    0,
    4,
    handle,
    has_large_answers=True,
    needs=(cluster(AclOperation.DESCRIBE),),
    refuse=lambda _, code: DescribeLogDirsResponse(error_code=code, results=[]),
)
