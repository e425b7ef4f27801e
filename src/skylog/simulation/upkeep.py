"""Workloads in which logs do not only grow: compaction, retention, moving replicas, topics that come and go."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from skylog.model import TopicPartition
from skylog.records import InvalidBatchError, check_batch, iterate_batches, read_records
from skylog.simulation import checks, upkeep_checks
from skylog.simulation.checks import Stored
from skylog.simulation.clients.copier import FLEETING, FleetingCopier, KeyedCopier
from skylog.simulation.clients.group_member import ConsumerMember
from skylog.simulation.clients.operators import Mover, Recreator, Remover
from skylog.simulation.clients.producer import NumberProducer
from skylog.simulation.clock import VirtualClock
from skylog.simulation.history import History, Value
from skylog.simulation.process import Process
from skylog.simulation.scenario import Scenario
from skylog.simulation.topic_reading import TopicContent, begin_reading, compare_replicas
from skylog.simulation.upkeep_checks import LastValues
from skylog.simulation.workloads import (
    COPIES,
    REPAIR_S,
    TOPIC,
    ClassicGroup,
    ConsumerGroup,
    GroupWorkload,
    Transactions,
    Workload,
    stuck,
)
from skylog.simulation.world import World

KEYS: Final = 7
COMPACTED: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "1000"}
DAMAGED: Final = b"damaged: "
_LOG_FOLDER = re.compile(r".+-\d+")


def key_of(value: Value) -> int:
    return value.number % KEYS


class Compaction(GroupWorkload):
    """A compacted topic with few keys, and a group whose own topic is compacted as well."""

    keys = KEYS

    @property
    def topics(self) -> dict[str, dict[str, str]]:
        return {TOPIC: self.scenario.topic_configs | COMPACTED}

    def judge(self, stored: Stored, ends: dict[int, int]) -> list[str]:
        history, kept = upkeep_checks.without_superseded(self.history, stored, key_of)
        return [
            *checks.violations(history, kept, ends),
            *checks.duplicates(stored),
            *checks.disorder(stored),
            *upkeep_checks.missing_keys(self.history, stored, key_of),
        ]

    def compare(self, ends: dict[int, int]) -> list[str]:
        found = []
        for index, image in enumerate(self.world.topics()[TOPIC].partitions):
            name = str(TopicPartition(TOPIC, index))
            replicas = {node: _last_values(self.world, node, name, ends[index]) for node in image.replicas}
            found += upkeep_checks.differing_last_values(name, replicas)
        return found


class CompactionOfClassicGroup(Compaction, ClassicGroup):
    pass


class CompactionOfConsumerGroup(Compaction, ConsumerGroup):
    commits_metadata = False  # small batches of offsets, as in the classic group


class CompactedTransactions(Transactions):
    """The copies are compacted. Only those of aborted transactions have the key of another one, and may go."""

    copier_type = KeyedCopier

    @property
    def topics(self) -> dict[str, dict[str, str]]:
        return super().topics | {COPIES: self.scenario.topic_configs | COMPACTED}

    def compare_copies(self, visible: TopicContent) -> list[str]:
        found = []
        for index, image in enumerate(self.world.topics()[COPIES].partitions):
            name = str(TopicPartition(COPIES, index))
            for node in image.replicas:
                replica = _last_values(self.world, node, name, visible.ends[index])
                values = {
                    offset: Value.decode(value)
                    for key, (offset, value) in replica.items()
                    if not key.startswith(DAMAGED)
                }
                found += upkeep_checks.missing_copies(f"{name} of broker {node}", visible.logs[index], values)
        return found


def _last_values(world: World, node: int, name: str, end: int) -> LastValues:
    """Return the last value of each key in the files of a replica, below an offset."""
    paths = sorted((world.machines[node].disk.path / name).glob("*.log"))
    return last_values([path.read_bytes() for path in paths], end)


def last_values(files: Sequence[bytes], end: int) -> LastValues:
    """Return the last value of each key below an offset. A damaged batch counts as a key that no other replica has."""
    found: dict[bytes, tuple[int, bytes]] = {}
    for data in files:
        for position, header in iterate_batches(data):
            if header.is_control or header.base_offset >= end:
                continue
            batch = data[position : position + header.size_bytes]
            try:
                check_batch(batch)
            except InvalidBatchError as error:
                found[DAMAGED + b"%d" % header.base_offset] = header.base_offset, str(error).encode()
                continue
            for record in read_records(batch):
                found[bytes(record.key or b"")] = record.offset, bytes(record.value or b"")
    return found


class Retention(Workload):
    """A topic whose old segments are deleted, and whose records are deleted on request."""

    keeps_everything = False

    def __init__(self, world: World, scenario: Scenario) -> None:
        super().__init__(world, scenario)
        self._remover = Remover(world, TOPIC, scenario.partitions, world.rng("remover"))

    @property
    def topics(self) -> dict[str, dict[str, str]]:
        return {TOPIC: self.scenario.topic_configs | {"retention.bytes": "3000", "segment.bytes": "1000"}}

    def start(self) -> None:
        super().start()
        self.world.spawn("remover", self._remover.run)

    def calm(self) -> None:
        self._remover.stop()

    def judge(self, stored: Stored, ends: dict[int, int]) -> list[str]:
        starts = {partition: min(log, default=ends[partition]) for partition, log in stored.items()}
        kept = upkeep_checks.without_deleted(self.history, stored, starts)
        return [*checks.violations(kept, stored, ends), *upkeep_checks.undeleted(self._remover.deleted, starts)]


class Reassignment(Workload):
    """An operator moves replicas, lets a broker join, and drains and stops another one."""

    def __init__(self, world: World, scenario: Scenario) -> None:
        super().__init__(world, scenario)
        self._mover = Mover(world, world.rng("mover"))
        world.machines[max(world.machines)].is_wanted = False

    def start(self) -> None:
        super().start()
        self.world.spawn("mover", self._mover.run)

    def calm(self) -> None:
        super().calm()
        self._mover.stop()

    async def finish_own(self, stored: Stored, ends: dict[int, int]) -> list[str]:
        return [*await super().finish_own(stored, ends), *await no_strays(self)]


class ReassignmentOfClassicGroup(Reassignment, ClassicGroup):
    pass


class ReassignmentOfConsumerGroup(Reassignment, ConsumerGroup):
    pass


class ReassignmentOfTransactions(Reassignment, Transactions):
    pass


class ReassignmentOfCompactedTransactions(Reassignment, CompactedTransactions):
    pass


class ReassignmentWithRetention(Reassignment, Retention):
    pass


class Recreation(Workload):
    """An operator deletes a topic and creates it again, each time with another producer."""

    def __init__(self, world: World, scenario: Scenario) -> None:
        super().__init__(world, scenario)
        rng = world.rng("recreator")
        self._recreator = Recreator(world, FLEETING, scenario, rng, self._start_fleeting, self._end_fleeting)
        self._fleeting: tuple[NumberProducer, Process] | None = None
        self._fleeting_history = History()
        self._former: set[Value] = set()

    def start(self) -> None:
        super().start()
        self.world.spawn("recreator", self._recreator.run)

    def calm(self) -> None:
        self._recreator.stop()

    def _start_fleeting(self, number: int) -> None:
        """Start the producer of a new topic."""
        world = self.world
        self._former |= {message.value for message in self._fleeting_history.acknowledged}
        self._fleeting_history = History()
        producer = NumberProducer(
            number,
            FLEETING,
            self.scenario.partitions,
            world.hosts,
            world.rng(f"producer/{number}"),
            VirtualClock(world.loop),
            self._fleeting_history,
            world.trace,
        )
        self._fleeting = producer, world.spawn(producer.name, producer.run)

    def _end_fleeting(self) -> None:
        if self._fleeting is not None:
            self.world.kill_client(self._fleeting[1])

    async def finish_own(self, stored: Stored, ends: dict[int, int]) -> list[str]:
        if not await self.until(lambda: self._recreator.is_done) or self._fleeting is None:
            return [stuck("the topic is not created again")]
        producer, _ = self._fleeting
        producer.stop()
        if not await self.until(lambda: producer.is_done):
            return [*self._fleeting_history.failed, stuck("the producer of the new topic waits")]
        partitions = self.scenario.partitions
        content = begin_reading(self.world, FLEETING, partitions)
        if not await self.until(lambda: len(content.ends) == partitions):
            return [stuck("the new topic cannot be read")]
        await self.until(lambda: not compare_replicas(self.world, FLEETING, content.ends), REPAIR_S, 3.0)
        return [
            *self._fleeting_history.failed,
            *checks.lost_writes(self._fleeting_history, content.logs),
            *checks.duplicates(content.logs),
            *checks.disorder(content.logs),
            *upkeep_checks.resurrected(content.logs, self._former),
            *compare_replicas(self.world, FLEETING, content.ends),
            *await no_strays(self),
        ]


async def no_strays(workload: Workload) -> list[str]:
    """Wait until no broker has a log that it has no replica of. Return those that are left."""
    world = workload.world
    running = {node: machine for node, machine in world.machines.items() if machine.broker is not None}

    def found() -> list[str]:
        folders = {
            node: [path.name for path in machine.disk.path.iterdir() if path.is_dir() and _is_log(path.name)]
            for node, machine in running.items()
        }
        wanted = {
            node: {
                str(TopicPartition(topic.name, index))
                for topic in world.topics().values()
                for index, partition in enumerate(topic.partitions)
                if node in partition.replicas
            }
            for node in running
        }
        return upkeep_checks.strays(folders, wanted)

    await workload.until(lambda: not found(), REPAIR_S, 3.0)
    return found()


def _is_log(name: str) -> bool:
    return _LOG_FOLDER.fullmatch(name) is not None


class PatternMember(ConsumerMember):
    pattern = f"{TOPIC}|{FLEETING}"


class RecreationOfConsumerGroup(Recreation, ConsumerGroup):
    """A group subscribes to both topics by a regular expression, and gets each new topic."""

    member_type = PatternMember

    async def finish_own(self, stored: Stored, ends: dict[int, int]) -> list[str]:
        late = [*await super().finish_own(stored, ends), *await ConsumerGroup.finish_own(self, stored, ends)]
        if not await self.until(self._has_new_topic):
            late.append(stuck("the group does not have all partitions of the new topic, and nothing else"))
        return late

    def _has_new_topic(self) -> bool:
        topic = self.world.topics()[FLEETING]
        members = [member for member in self._members if isinstance(member, ConsumerMember)]
        found = sorted((row.topic_id, index) for each in members for row in each.others for index in row.partitions)
        return found == [(topic.topic_id, index) for index in range(self.scenario.partitions)]


class RecreationOfTransactions(Recreation, Transactions):
    """Transactions write to the topic that is deleted, too."""

    copier_type = FleetingCopier

    async def finish_own(self, stored: Stored, ends: dict[int, int]) -> list[str]:
        late = [*await super().finish_own(stored, ends), *await Transactions.finish_own(self, stored, ends)]
        visible = begin_reading(self.world, FLEETING, self.scenario.partitions, read_committed=True)
        if not await self.until(lambda: len(visible.ends) == self.scenario.partitions):
            late.append(stuck("the new topic cannot be read to its end: a transaction stays open"))
        return late
