"""Leaders of the offsets topic change at random while clients commit: no acknowledged offset is lost or moves back.

The broker under test is one of two replicas. The other one is a model: it copies records when the test says so, and
while it leads, it takes commits itself. A commit is acknowledged when both replicas have it. Each attempt commits a
larger offset than those before, so an offset tells which attempt it is from.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import NamedTuple

import pytest

from skylog.broker import Broker, ServerConfig, standalone_broker
from skylog.broker.group_shard import MemberId
from skylog.broker.partition import Partition
from skylog.errors import ErrorCode, KafkaError
from skylog.groups import CommittedOffset, GroupConfig, Groups
from skylog.groups.stored_records import decode_offset
from skylog.model import CONSUMER_OFFSETS_TOPIC, TopicPartition
from skylog.records import Record, build_batch, iterate_batches, read_records, stamp_offset
from tests.seeds import seed

from .leaders import OURS, THEIRS, elect, index_of, replica_of

PARTITIONS = 3
GROUPS = [f"group-{number}" for number in range(9)]
STEPS = 200
NAME = TopicPartition("t", 0)
BOTH = (OURS, THEIRS)
ANYONE = MemberId("", None, -1)
_groups = Groups(GroupConfig())


class Stored(NamedTuple):
    """A record of the offsets topic, as a replica has it."""

    epoch: int
    key: bytes
    value: bytes | None


def commit_of(group: str, offset: int, epoch: int) -> Stored:
    return Stored(epoch, *_groups.offset_record(group, NAME, CommittedOffset(offset, -1, "", 0)))


def records_in(partition: Partition, offset: int = 0) -> list[Stored]:
    """Return the records of a log from an offset on. Each batch has one."""
    records: list[Stored] = []
    while offset + len(records) < partition.log.log_end_offset:
        found = partition.log.read_checked(offset + len(records), 1 << 30)
        assert found is not None
        data = bytes(found.read())
        for position, header in iterate_batches(data):
            (record,) = read_records(data[position : position + header.size_bytes])
            assert header.base_offset == offset + len(records)
            assert record.key is not None
            records.append(Stored(header.partition_leader_epoch, record.key, record.value))
    return records


class OtherReplica:
    """The model of the other broker's replica of one partition. Its offsets are the indexes of `records`."""

    def __init__(self, broker: Broker, index: int) -> None:
        self._broker = broker
        self._index = index
        self.records: list[Stored] = []
        broker.replicas.on_leadership(self._on_leadership)

    @property
    def ours(self) -> Partition:
        """The replica of the broker under test."""
        partition = self._broker.replicas.find(TopicPartition(CONSUMER_OFFSETS_TOPIC, self._index))
        assert partition is not None
        return partition

    @property
    def leads(self) -> bool:
        return not self.ours.is_leader

    async def change_leader(self) -> None:
        await elect(self._broker, OURS if self.leads else THEIRS, self._index, in_sync=BOTH)

    def _on_leadership(self, partition: Partition, leads: bool) -> None:
        """The replica that follows now cuts off what the other one does not have."""
        if partition is not self.ours:
            return
        if leads:
            del self.records[partition.log.log_end_offset :]
        else:
            partition.log.truncate_to(len(self.records), self._broker.clock.now_ms())

    def copy(self, count: int) -> None:
        """Copy some records of the leader. Those that both replicas have are committed."""
        self.records += records_in(self.ours, len(self.records))[:count]
        self.ours.advance_high_watermark(len(self.records))

    def commit(self, group: str, offset: int, *, is_copied: bool) -> bool:
        """Take a commit as the leader. Return whether it is acknowledged: the broker under test has copied it."""
        self.records.append(commit_of(group, offset, self.ours.leader_epoch))
        log = self.ours.log
        if is_copied:
            for record in self.records[log.log_end_offset :]:
                batch = build_batch([Record(value=record.value, key=record.key, timestamp=0)])
                stamp_offset(batch, log.log_end_offset, record.epoch)
                log.append_as_follower(memoryview(batch), 1 << 30, self._broker.clock.now_ms())
        return is_copied


class Clients:
    """One client for each group. `acknowledged` has the offsets of each that were acknowledged, in their order."""

    def __init__(self, broker: Broker, others: list[OtherReplica], randomness: random.Random) -> None:
        self._broker = broker
        self._others = others
        self._random = randomness
        self.acknowledged: dict[str, list[int]] = {group: [0] for group in GROUPS}
        self.is_over = False
        self.errors: set[ErrorCode] = set()

    async def run(self, group: str) -> None:
        offset = 0
        while not self.is_over:
            offset += 1
            try:
                if await self._commit(group, offset):
                    self.acknowledged[group].append(offset)
            except KafkaError as error:
                self.errors.add(error.code)
            await asyncio.sleep(self._random.choice((0, 0.002, 0.005)))

    async def _commit(self, group: str, offset: int) -> bool:
        other = self._others[index_of(self._broker, group)]
        if other.leads:
            return other.commit(group, offset, is_copied=self._random.random() < 0.7)
        shard = self._broker.coordinator.shard(group)
        await shard.commit_offsets(group, ANYONE, {NAME: CommittedOffset(offset, -1, "", 0)})
        return True


class Checks:
    """What holds at any time. `count` counts the checks of groups that the broker served."""

    def __init__(self, broker: Broker, clients: Clients) -> None:
        self._broker = broker
        self._clients = clients
        self.count = 0

    def check(self, group: str) -> None:
        acknowledged, stored = self._clients.acknowledged[group], self.stored(group)
        assert set(acknowledged) <= set(stored), f"{group}: acknowledged offsets are not in the log"
        try:
            served = self._broker.coordinator.shard(group).offsets_of(group).get(NAME)
        except KafkaError:
            return
        offset = served.offset if served is not None else 0
        assert offset >= acknowledged[-1], f"{group} has moved back"
        assert offset in stored, f"{group}: {offset} is served but not in the log"
        self.count += 1

    def stored(self, group: str) -> list[int]:
        """Return the offsets of a group that are in the log, in their order."""
        return [0, *stored_offsets(records_in(replica_of(self._broker, group)), group)]


def stored_offsets(records: list[Stored], group: str) -> list[int]:
    key = commit_of(group, 0, 0).key
    return [decode_offset(record.value).offset for record in records if record.key == key and record.value is not None]


async def run_elections(broker: Broker, randomness: random.Random) -> Checks:
    await broker.topics.create("t", broker.topics.plan("t"))
    await broker.coordinator.ensure_topic()
    others = [OtherReplica(broker, index) for index in range(PARTITIONS)]
    await elect(broker, OURS, *range(PARTITIONS), in_sync=BOTH)
    clients = Clients(broker, others, randomness)
    checks = Checks(broker, clients)
    running = [asyncio.create_task(clients.run(group)) for group in GROUPS]
    for _ in range(STEPS):
        other = randomness.choice(others)
        if randomness.random() < 0.3:
            await other.change_leader()
        elif not other.leads:
            other.copy(randomness.randrange(8))
        await asyncio.sleep(randomness.choice((0, 0, 0, 0.002, 0.01)))
        checks.check(randomness.choice(GROUPS))
    for other in others:
        if other.leads:
            await other.change_leader()
    clients.is_over = True
    while not all(task.done() for task in running) or broker.coordinator.is_loading:
        for other in others:
            other.copy(1000)
        await asyncio.sleep(0.001)
    await asyncio.gather(*running)
    for group in GROUPS:
        checks.check(group)
        shard = broker.coordinator.shard(group)
        assert shard.offsets_of(group)[NAME].offset == checks.stored(group)[-1], "what is stored last is served"
        assert not shard._log.has_in_flight(group)
    assert clients.errors <= {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    assert ErrorCode.NOT_COORDINATOR in clients.errors, "commits were in flight when a leader changed"
    assert broker.coordinator.failures == 0
    return checks


@pytest.mark.parametrize("flush", ["page-cache", "fsync"])
def test_no_acknowledged_offset_is_lost_or_moves_back_while_leaders_change(tmp_path: Path, flush: str) -> None:
    number = seed()
    settings = {"offsets.topic.num.partitions": str(PARTITIONS)}
    if flush == "fsync":
        settings["log.flush.interval.messages"] = "1"

    async def run() -> Checks:
        broker = standalone_broker(tmp_path / "data", ServerConfig.parse(settings))
        await broker.start("127.0.0.1", 0)
        try:
            return await run_elections(broker, random.Random(number))
        finally:
            await broker.stop()

    checks = asyncio.run(run())
    assert checks.count > len(GROUPS)
