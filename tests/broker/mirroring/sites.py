"""Two clusters on the event loop of a test: west, which is mirrored, and east, which mirrors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop

from skylog.broker import Broker
from skylog.broker.group_shard import MemberId
from skylog.broker.partition import ALL, Partition
from skylog.groups import CommittedOffset
from skylog.model import TopicPartition
from skylog.records import BatchHeader, iterate_batches
from skylog.replication.mirror import Mirror

from ..loop_cluster import LoopCluster, soon
from ..raw import batch_of

SETTINGS = {"offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1", "num.partitions": "1"}
NOBODY = MemberId("", None, -1)


class Sites:
    """Both clusters. Every broker of a cluster has an id from 1 on."""

    def __init__(self, west: LoopCluster, east: LoopCluster) -> None:
        self.west = west
        self.east = east

    async def mirror(
        self,
        *topics: str,
        name: str = "m",
        groups: tuple[str, ...] = (),
        prefix: str = "",
        source: LoopCluster | None = None,
        target: LoopCluster | None = None,
        adopts: bool = False,
    ) -> None:
        """Let a cluster mirror another one, by default east the west."""
        source, target = source or self.west, target or self.east
        ports = [each.endpoints.port for each in source.brokers.values()]
        address = ",".join(f"127.0.0.1:{port}" for port in ports)
        await any_broker(target).mirrors.create(Mirror(name, address, topics, groups, prefix, adopts=adopts))

    async def copied(self, topic: str = "t", index: int = 0, *, to: str | None = None) -> Partition:
        """Wait until east has what west has of a partition, on the leader and committed. Return that partition."""
        wanted = leader(self.west, topic, index)

        def is_copied() -> Partition | None:
            found = leader_or_none(self.east, to or topic, index)
            is_there = found is not None and found.log.log_end_offset == wanted.log.log_end_offset
            return found if is_there and found is not None and found.high_watermark == wanted.high_watermark else None

        return await present(is_copied, f"{topic}-{index} at east")

    def rows(self, name: str = "m") -> dict[tuple[str, int], dict[str, Any]]:
        """Return what the brokers of east say about the partitions of a mirror."""
        return {
            (row["topic"], row["partition"]): row
            for broker in self.east.brokers.values()
            for row in broker.mirrors.describe(broker.mirrors.get(name))["partitions"]
        }

    def status(self, topic: str = "t", index: int = 0, name: str = "m") -> str | None:
        row = self.rows(name).get((topic, index))
        return None if row is None else str(row["status"])

    async def promoted(self, *topics: str, name: str = "m") -> None:
        broker = any_broker(self.east)
        await broker.mirrors.promote(name, list(topics) or None)
        await soon(
            lambda: all(each.state == "promoted" for each in broker.mirrors.get(name).mirrored.values()),
            "the promotion",
        )


async def present(find: Callable[[], Partition | None], what: str) -> Partition:
    """Wait until there is such a partition, and return it."""
    await soon(find, what)
    found = find()
    assert found is not None
    return found


async def led(cluster: LoopCluster, topic: str = "t") -> Partition:
    """Wait until a partition has a leader, and return that."""
    return await present(lambda: leader_or_none(cluster, topic), f"the leader of {topic}")


def any_broker(cluster: LoopCluster) -> Broker:
    return next(iter(cluster.brokers.values()))


def leader_or_none(cluster: LoopCluster, topic: str, index: int = 0) -> Partition | None:
    found = (cluster.find(node, topic, index) for node in cluster.brokers)
    return next((each for each in found if each is not None and each.is_leader), None)


def leader(cluster: LoopCluster, topic: str = "t", index: int = 0) -> Partition:
    found = leader_or_none(cluster, topic, index)
    assert found is not None
    return found


def append(partition: Partition, *values: bytes, **options: Any) -> None:
    partition.append(memoryview(batch_of(*values, **options)), 1000, ALL)


def batches(partition: Partition) -> list[bytes]:
    """Return the stored batches, without the field that is each cluster's own: the leader epoch."""
    log = partition.log
    offset, found = log.log_start_offset, []
    while (part := log.read(offset, 1 << 20)) is not None:
        data = part.read()
        for position, header in iterate_batches(data):
            batch = data[position : position + header.size_bytes]
            found.append(header._replace(partition_leader_epoch=0).pack() + batch[len(header.pack()) :])
            offset = header.end_offset
    return found


def headers(partition: Partition) -> list[BatchHeader]:
    return [BatchHeader.read(batch) for batch in batches(partition)]


async def commit(cluster: LoopCluster, group: str, topic: str, offset: int) -> None:
    broker = any_broker(cluster)
    await broker.coordinator.ensure_topic()
    await soon(lambda: _serves(broker, group), "the coordinator")
    offsets = {TopicPartition(topic, 0): CommittedOffset(offset, -1, "", broker.clock.now_ms())}
    await broker.coordinator.shard(group).commit_offsets(group, NOBODY, offsets)


def _serves(broker: Broker, group: str) -> bool:
    try:
        broker.coordinator.shard(group)
    except Exception:
        return False
    return True


def committed(cluster: LoopCluster, group: str, topic: str) -> int | None:
    broker = any_broker(cluster)
    if not _serves(broker, group):
        return None
    found = broker.coordinator.shard(group).offsets_of(group).get(TopicPartition(topic, 0))
    return None if found is None else found.offset


def with_sites(
    path: Path, scenario: Callable[[Sites], Awaitable[None]], *, west: int = 1, east: int = 1, **settings: str
) -> None:
    """Run a scenario with clusters of so many brokers."""
    given = {**SETTINGS, **{key.replace("_", "."): value for key, value in settings.items()}}

    async def run() -> None:
        async with LoopCluster(path / "west", given) as west_cluster, LoopCluster(path / "east", given) as east_cluster:
            await west_cluster.start(*range(1, west + 1))
            await east_cluster.start(*range(1, east + 1))
            await scenario(Sites(west_cluster, east_cluster))

    uvloop.run(run())
