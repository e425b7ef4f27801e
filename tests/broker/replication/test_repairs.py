"""Damage to a replica is found, never served or copied, and repaired from another replica."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from skylog.broker import Broker
from skylog.broker.metrics.collect import collect
from skylog.broker.partition import Partition, Role
from skylog.broker.replication import fetcher as fetcher_module
from skylog.broker.replication import repairs as repairs_module
from skylog.errors import ErrorCode
from skylog.model import TopicPartition
from skylog.net.peer import Peer
from skylog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from skylog.storage import LogConfig
from tests.present import present
from tests.storage.logs import a_batch, settings

from ..local_cluster import LocalCluster
from ..process import until as wait_until
from .pair import FOLLOWER, LEADER, Pair, membership_of, pair_of_brokers, until

SMALL = {"log_segment_bytes": "20000", "log_index_interval_bytes": "1000", "log_scrub_bytes_per_second": "100000000"}
BATCHES = 100
ACKS_ALL = -1


class Replica:
    """A broker's replica of the topic, and what its files held before the damage."""

    def __init__(self, broker: Broker, partition: Partition) -> None:
        self.broker = broker
        self.partition = partition
        self.log = partition.log
        self.before: dict[Path, bytes] = {}

    def damage(self, position: int, length: int = 1, segment: int = 0) -> None:
        """Flip bits in the file of a segment, behind the broker's back. Positions below zero count from its end."""
        path = self.log.segments[segment].path
        content = path.read_bytes()
        self.before.setdefault(path, content)
        position %= len(content)
        with open(path, "r+b") as file:
            file.seek(position)
            file.write(bytes(byte ^ 0x55 for byte in content[position : position + length]))
        assert path.read_bytes() != content

    @property
    def is_restored(self) -> bool:
        return all(path.read_bytes()[: len(content)] == content for path, content in self.before.items())

    async def scrub(self) -> None:
        await membership_of(self.broker).scrubber.scrub_all()

    @property
    def repaired_ranges(self) -> int:
        return membership_of(self.broker).repairs.repaired_ranges

    async def until_repaired(self) -> None:
        await until(lambda: self.repaired_ranges and not self.log.damages)
        assert self.is_restored

    async def fetch(self, offset: int, client_id: str = "consumer") -> PartitionData:
        """Read as a consumer does."""
        address = self.broker.metadata.image.brokers[self.broker.identity.node_id]
        peer = await Peer.connect(address.host, address.port, client_id=client_id)
        row = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topic = FetchTopic(topic_id=self.partition.topic_id, partitions=[row])
        answer = await peer.ask(FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topic]), 17)
        peer.close()
        found: PartitionData = answer.responses[0].partitions[0]
        return found


def produce(leader: Partition, batches: int = BATCHES) -> None:
    for number in range(batches):
        leader.append(memoryview(a_batch(3, size_bytes=20 + number * 7 % 400)), 0, ACKS_ALL)


async def replicated(pair: Pair) -> tuple[Replica, Replica]:
    """Return the replicas of a topic that both brokers have, in several segments."""
    leader, follower = await pair.create_topic()
    produce(leader)
    await until(lambda: follower.high_watermark == leader.log.log_end_offset)
    assert len(follower.log.segments) > 2
    return Replica(pair.leader, leader), Replica(pair.follower, follower)


def run(test: Callable[[Replica, Replica], Awaitable[None]], path: Path, **config: str) -> None:
    async def with_brokers() -> None:
        async with pair_of_brokers(path, **SMALL, **config) as pair:
            await test(*await replicated(pair))

    asyncio.run(with_brokers())


@asynccontextmanager
async def producing(leader: Replica) -> AsyncIterator[None]:
    """Append to the topic for the time of the block."""

    async def append() -> None:
        while True:
            produce(leader.partition, 1)
            await asyncio.sleep(0.002)

    task = asyncio.create_task(append())
    try:
        yield
    finally:
        task.cancel()


@pytest.mark.parametrize("segment", [0, -1], ids=["closed", "active"])
@pytest.mark.parametrize("damaged", [LEADER, FOLLOWER], ids=["leader", "follower"])
def test_a_scrub_finds_damage_and_it_is_repaired_while_a_producer_goes_on(
    tmp_path: Path, segment: int, damaged: int
) -> None:
    async def test(leader: Replica, follower: Replica) -> None:
        replica = leader if damaged == LEADER else follower
        async with producing(leader):
            replica.damage(300, 4, segment)
            replica.damage(1500, 1, segment)
            end_offset = leader.log.log_end_offset
            await until(lambda: follower.log.high_watermark > end_offset)
            await replica.scrub()
            await replica.until_repaired()
        await until(lambda: follower.log.high_watermark == leader.log.log_end_offset)
        assert contents(leader) == contents(follower)

    run(test, tmp_path)


def contents(replica: Replica) -> bytes:
    return b"".join(segment.path.read_bytes() for segment in replica.log.segments)


def create(cluster: LocalCluster, node_ids: list[int]) -> str:
    """Create a topic, and wait until all its replicas are open and the first of them leads."""
    name = cluster.create("t", node_ids)

    def role_of(node_id: int) -> Role | None:
        return cluster.look(node_id, lambda broker: broker.replicas.role_of(TopicPartition(name, 0)))

    roles = [Role.LEADER, *[Role.FOLLOWER] * (len(node_ids) - 1)]
    wait_until(lambda: [role_of(node_id) for node_id in node_ids] == roles, "the replicas")
    return name


def test_damage_that_a_read_finds_after_a_restart_is_repaired(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, 2, {key.replace("_", "."): value for key, value in SMALL.items()}) as cluster:
        topic = create(cluster, [LEADER, FOLLOWER])
        cluster.look(LEADER, lambda broker: produce(broker.replicas.leader(topic, 0)))
        path = tmp_path / f"broker-{FOLLOWER}" / "t-0" / f"{0:020d}.log"
        wait_until(lambda: path.exists() and path.stat().st_size > 10000, "the replica")
        cluster.stop(FOLLOWER)
        before = path.read_bytes()
        path.write_bytes(before[:300] + b"damage" + before[306:])
        cluster.start(FOLLOWER)
        cluster.until_in_sync(topic, [LEADER, FOLLOWER])

        def read() -> PartitionData:
            replica = Replica(cluster.brokers[FOLLOWER], cluster.brokers[FOLLOWER].replicas.readable(topic, 0))
            found: PartitionData = cluster.run(replica.fetch(6))
            return found

        read()
        wait_until(lambda: path.read_bytes() == before, "the repair")
        wait_until(lambda: read().error_code == ErrorCode.NONE, "the repaired batch")


def test_damage_in_the_last_batch_of_the_active_segment_is_repaired(tmp_path: Path) -> None:
    async def test(_: Replica, follower: Replica) -> None:
        follower.damage(-1, segment=-1)
        await follower.scrub()
        await follower.until_repaired()

    run(test, tmp_path)


def test_many_damaged_batches_are_repaired(tmp_path: Path) -> None:
    async def test(leader: Replica, follower: Replica) -> None:
        follower.damage(1000, 9000)
        leader.damage(12000, 2000)
        await follower.scrub()
        await follower.until_repaired()
        await leader.scrub()
        await leader.until_repaired()
        assert contents(leader) == contents(follower)

    run(test, tmp_path)


def test_a_batch_that_is_damaged_on_all_replicas_is_neither_served_nor_repaired(tmp_path: Path) -> None:
    async def test(leader: Replica, follower: Replica) -> None:
        leader.damage(80)
        follower.damage(90)
        for replica in (leader, follower):
            await replica.scrub()
            await until(lambda: membership_of(replica.broker).repairs.failures)  # noqa: B023 # evaluated here
            assert (await replica.fetch(0)).error_code == ErrorCode.CORRUPT_MESSAGE
            assert (await replica.fetch(3)).error_code == ErrorCode.NONE
            assert len(replica.log.damages) == 1
            assert not replica.is_restored

    run(test, tmp_path)


def test_a_damaged_batch_of_the_leader_is_not_sent_to_a_follower(tmp_path: Path) -> None:
    async def test(leader: Replica, follower: Replica) -> None:
        fetchers = membership_of(follower.broker).fetchers
        await fetchers.stop()
        await membership_of(leader.broker).repairs.stop()
        follower.partition.truncate_to(0, 0)
        leader.damage(80)
        await leader.scrub()
        fetchers.start()
        await asyncio.sleep(0.3)
        assert follower.log.log_end_offset == 0

    run(test, tmp_path)


def test_a_damaged_batch_that_arrives_at_a_follower_is_rejected(tmp_path: Path) -> None:
    async def test(leader: Replica, follower: Replica) -> None:
        fetchers = membership_of(follower.broker).fetchers
        await fetchers.stop()
        leader.damage(5000)  # the leader does not know of it, and sends it
        follower.partition.truncate_to(0, 0)
        fetchers.start()
        await until(lambda: fetchers.failures)
        assert 0 < follower.log.log_end_offset < leader.log.log_end_offset
        assert leader.before[leader.log.segments[0].path].startswith(contents(follower))

    run(test, tmp_path)


def test_a_damaged_batch_that_a_follower_rejects_is_repaired_and_then_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher_module, "DAMAGE_RETRY_S", 0.05)
    with LocalCluster(tmp_path, 3, {key.replace("_", "."): value for key, value in SMALL.items()}) as cluster:
        topic = create(cluster, [1, 2, 3])
        leader, _, follower = (Replica(each, each.replicas.readable(topic, 0)) for each in cluster.brokers.values())
        cluster.look(1, lambda _: produce(leader.partition))
        end_offset = leader.log.log_end_offset
        for each in cluster.brokers.values():
            log = each.replicas.readable(topic, 0).log
            wait_until(lambda: log.high_watermark == end_offset, "the replicas")  # noqa: B023 # evaluated here
        fetchers = membership_of(follower.broker).fetchers
        cluster.run(fetchers.stop())
        cluster.look(3, lambda _: follower.partition.truncate_to(0, 0))
        leader.damage(5000)  # in batches that the leader does not check again by itself
        cluster.look(3, lambda _: fetchers.start())
        wait_until(lambda: follower.log.log_end_offset == end_offset, "the follower")
        assert fetchers.failures
        assert leader.is_restored
        assert leader.repaired_ranges == 1


def test_a_leader_whose_uncommitted_batch_is_damaged_lets_a_complete_replica_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other replica has the batch, and none would ever accept it. So nothing could be committed any more."""
    monkeypatch.setattr(fetcher_module, "DAMAGE_RETRY_S", 0.05)

    async def test(leader: Replica, follower: Replica) -> None:
        fetchers = membership_of(follower.broker).fetchers
        await fetchers.stop()
        committed = contents(leader)
        produce(leader.partition, 2)
        leader.damage(-1, segment=-1)
        fetchers.start()
        await until(lambda: follower.partition.is_leader)
        assert contents(follower).startswith(committed)
        produce(follower.partition, 1)
        await until(lambda: follower.log.high_watermark == follower.log.log_end_offset)
        await until(lambda: len(present(follower.partition.image).in_sync_replicas) == 2)
        assert contents(leader) == contents(follower)
        assert leader.log.damages == []

    run(test, tmp_path)


async def delete_records(leader: Replica, follower: Replica, before_offset: int) -> None:
    leader.partition.delete_records(before_offset)
    await until(lambda: follower.log.log_start_offset == before_offset)


def test_damage_of_deleted_records_is_not_repaired(tmp_path: Path) -> None:
    """No replica returns them. They are no damage any more, and are deleted with their segment."""

    async def test(leader: Replica, follower: Replica) -> None:
        await delete_records(leader, follower, 3)
        follower.damage(80)
        await follower.scrub()
        assert follower.log.segments[0].soundness.damages, "the scrub has not come across it"
        assert follower.log.damages == []
        assert membership_of(follower.broker).repairs.failures == 0

    run(test, tmp_path)


def test_a_damaged_batch_with_deleted_records_is_repaired(tmp_path: Path) -> None:
    async def test(leader: Replica, follower: Replica) -> None:
        await delete_records(leader, follower, 1)
        follower.damage(80)
        await follower.scrub()
        await follower.until_repaired()

    run(test, tmp_path)


def test_a_replica_with_several_damaged_batches_of_which_the_first_are_deleted_is_copied_again(tmp_path: Path) -> None:
    """No replica returns the first, so nothing fits into the range."""

    async def test(leader: Replica, follower: Replica) -> None:
        await delete_records(leader, follower, 4)
        follower.damage(0, 300)
        await follower.scrub()
        await until(lambda: follower.log.log_start_offset == 4 and not follower.log.damages)
        await until(lambda: follower.log.high_watermark == leader.log.log_end_offset)
        assert contents(leader).endswith(contents(follower))
        await until(lambda: present(leader.partition.image).in_sync_replicas == (LEADER, FOLLOWER))

    run(test, tmp_path)


def test_a_replica_whose_log_is_compacted_differently_keeps_its_damage(tmp_path: Path) -> None:
    async def test(leader: Replica, follower: Replica) -> None:
        compacted: LogConfig = settings(cleanup_policy="compact", min_cleanable_dirty_ratio=0, segment_bytes=20000)
        leader.log.configure(compacted)
        leader.log.recovery_point = leader.log.log_end_offset
        await leader.broker.compactor.clean_one()
        assert leader.log.size_bytes < follower.log.size_bytes
        follower.damage(300)
        await follower.scrub()
        await until(lambda: membership_of(follower.broker).repairs.failures)
        assert len(follower.log.damages) == 1
        assert (await follower.fetch(3)).error_code == ErrorCode.CORRUPT_MESSAGE

    run(test, tmp_path)


def test_a_leader_that_cannot_be_copied_again_lets_a_replica_lead_that_has_compacted_the_damaged_batch(
    tmp_path: Path,
) -> None:
    """Both must be in sync, so it cannot leave. Nobody could read the partition, and no follower catch up from it."""

    async def test(leader: Replica, follower: Replica) -> None:
        compacted = settings(
            cleanup_policy="compact", min_cleanable_dirty_ratio=0, segment_bytes=20000, min_insync_replicas=2
        )
        for replica in (leader, follower):
            replica.log.configure(compacted)
        follower.log.recovery_point = follower.log.log_end_offset
        await follower.broker.compactor.clean_one()
        assert follower.log.size_bytes < leader.log.size_bytes
        leader.damage(300)
        await leader.scrub()
        await until(lambda: follower.partition.is_leader)
        assert present(follower.partition.image).in_sync_replicas == (LEADER, FOLLOWER)
        await until(lambda: follower.log.high_watermark == follower.log.log_end_offset)
        assert (await follower.fetch(0)).error_code == ErrorCode.NONE

    run(test, tmp_path, min_insync_replicas="2")


def test_a_repair_is_retried_when_the_other_replica_cannot_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repairs_module, "FIRST_RETRY_S", 0.05)

    async def test(leader: Replica, follower: Replica) -> None:
        await leader.broker.listener.stop(0)
        follower.damage(300)
        await follower.scrub()
        await until(lambda: membership_of(follower.broker).repairs.failures)
        assert len(follower.log.damages) == 1
        await leader.broker.listener.start("127.0.0.1", leader.broker.metadata.image.brokers[LEADER].port)
        await follower.until_repaired()

    run(test, tmp_path)


def test_scrubs_and_repairs_are_counted(tmp_path: Path) -> None:
    async def test(_: Replica, follower: Replica) -> None:
        follower.damage(300)
        await follower.scrub()
        await follower.until_repaired()
        metrics = {metric.name: metric.samples for metric in await collect(follower.broker)}
        assert metrics["skylog_repaired_ranges_total"][0].value == 1
        assert metrics["skylog_damaged_ranges"][0].value == 0
        assert metrics["skylog_scrubbed_bytes_total"][0].value == follower.log.size_bytes

    run(test, tmp_path)


def test_a_scrub_that_is_turned_off_reads_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with pair_of_brokers(tmp_path, **SMALL | {"log_scrub_bytes_per_second": "0"}) as pair:
            _, follower = await replicated(pair)
            follower.damage(300)
            await follower.scrub()
            assert follower.log.damages == []

    asyncio.run(test())
