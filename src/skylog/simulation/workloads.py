"""The clients of a run: producers and readers of one topic, and what the workload adds to them.

A workload starts its clients, ends them when all is healed and produced, and returns the violations that it finds.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from random import Random
from typing import Final

from skylog.simulation import checks
from skylog.simulation.checks import Stored
from skylog.simulation.clients.copier import Copier, source_of
from skylog.simulation.clients.group_member import ClassicMember, CommittedWatch, ConsumerMember, Member
from skylog.simulation.clients.producer import NumberProducer
from skylog.simulation.clients.reader import Reader
from skylog.simulation.clients.session_reader import SessionReader
from skylog.simulation.clock import VirtualClock
from skylog.simulation.history import History
from skylog.simulation.process import Process
from skylog.simulation.scenario import Scenario
from skylog.simulation.topic_reading import TopicContent, begin_reading, compare_replicas, wrong_indexes
from skylog.simulation.world import World

TOPIC: Final = "t"
COPIES: Final = "copies"
HEAL_S: Final = 90.0


async def wait_until(world: World, condition: Callable[[], object], seconds: float, interval_s: float = 0.1) -> bool:
    """Wait until a condition is true. Return whether it is within this time."""
    deadline = world.loop.time() + seconds
    while not condition():
        if world.loop.time() > deadline:
            return False
        await asyncio.sleep(interval_s)
    return True


class Workload:
    """Producers and readers of numbers, which every run has."""

    keys = 0
    """How many keys the messages have; 0 if each has its own."""
    keeps_everything = True
    """Whether nothing is deleted, so that all that was read is in range for ever."""

    def __init__(self, world: World, scenario: Scenario) -> None:
        self.world = world
        self.scenario = scenario
        self.history = History()
        self.producers: dict[NumberProducer, Process] = {}
        self.readers: list[Reader] = []
        self._started = 0

    @property
    def topics(self) -> dict[str, dict[str, str]]:
        """The topics to create, with their configs."""
        return {TOPIC: self.scenario.topic_configs}

    def start(self) -> None:
        for _ in range(self.scenario.producers):
            self._start_producer()
        for number in range(self.scenario.readers):
            self._start_reader(number)
        for number in range(self.scenario.readers, self.scenario.readers + self.scenario.session_readers):
            self.readers.append(self._start_session_reader(number, TOPIC, self.history))

    def _start_producer(self) -> None:
        number, world = self._started, self.world
        self._started += 1
        rng, clock = world.rng(f"producer/{number}"), VirtualClock(world.loop)
        producer = NumberProducer(
            number, TOPIC, self.scenario.partitions, world.hosts, rng, clock, self.history, world.trace, self.keys
        )
        if self.scenario.pause_s is not None:
            producer.pause_s = self.scenario.pause_s
        self.producers[producer] = world.spawn(producer.name, producer.run)

    def _start_reader(self, number: int) -> None:
        world = self.world
        rng = world.rng(f"reader/{number}")
        partitions, is_first = self.scenario.partitions, number == 0
        reader = Reader(number, TOPIC, partitions, world.hosts, rng, self.history, watches_ends=is_first)
        self.readers.append(reader)
        world.spawn(reader.name, reader.run)

    def _start_session_reader(
        self, number: int, topic: str, history: History, *, read_committed: bool = False
    ) -> SessionReader:
        world, partitions = self.world, self.scenario.partitions
        rng = world.rng(f"reader/{number}")
        reader = SessionReader(number, topic, partitions, world.hosts, rng, history, read_committed=read_committed)
        world.spawn(reader.name, reader.run)
        return reader

    def kill_client(self, rng: Random) -> None:
        """Kill a producer, and start another in its place."""
        producer = list(self.producers)[rng.randrange(1000) % len(self.producers)]
        self.world.kill_client(self.producers.pop(producer))
        self._start_producer()

    def calm(self) -> None:
        """End what would keep the cluster from coming to rest. Called before everything is healed."""

    # -- the end

    async def finish(self) -> list[str]:
        """Stop the producers, and check everything. Called when all replicas are in sync."""
        for producer in self.producers:
            producer.stop()
        late = []
        if not await self.until(lambda: all(each.is_done for each in self.producers)):
            late.append(stuck("producers wait for acknowledgements"))
        content = begin_reading(self.world, TOPIC, self.scenario.partitions)
        if not await self.until(lambda: len(content.ends) == self.scenario.partitions):
            return [*self.history.failed, *late, stuck("the topic cannot be read")]
        ends = content.ends
        if not await self.until(lambda: all(each.has_read(ends) for each in self.readers)):
            late.append(stuck("readers are not at the end"))
        if late:
            return [*self.history.failed, *late]
        own = await self.finish_own(content.logs, ends)
        await self.until(lambda: not self.compare(ends), REPAIR_S, 3.0)
        denied = [line for each in self.readers for line in each.denied] if self.keeps_everything else []
        return [*self.judge(content.logs, ends), *denied, *own, *self.compare(ends), *wrong_indexes(self.world)]

    def judge(self, stored: Stored, ends: dict[int, int]) -> list[str]:
        """Return the violations of the history."""
        return checks.violations(self.history, stored, ends)

    def compare(self, ends: dict[int, int]) -> list[str]:
        """Return the differences between replicas."""
        return compare_replicas(self.world, TOPIC, ends)

    async def finish_own(self, stored: Stored, ends: dict[int, int]) -> list[str]:
        """Return the violations that only this workload can find."""
        return []

    async def until(self, condition: Callable[[], object], seconds: float = HEAL_S, interval_s: float = 0.1) -> bool:
        return await wait_until(self.world, condition, seconds, interval_s)


REPAIR_S: Final = 150.0
"""A scrub finds damage within this time, and repairs it from another replica."""


def stuck(what: str) -> str:
    return f"stuck: {what} {HEAL_S:g} s after everything has healed"


class GroupWorkload(Workload):
    """A consumer group, whose members are killed and replaced, and a look at its committed offsets."""

    member_type: type[Member]
    size = 2
    commits_metadata = False
    is_static = False
    """Whether members have instance ids (KIP-345). One that takes the place of another has the same."""

    def __init__(self, world: World, scenario: Scenario) -> None:
        super().__init__(world, scenario)
        self._members: dict[Member, Process] = {}
        self._members_started = 0

    def start(self) -> None:
        super().start()
        for index in range(self.size):
            self._start_member(f"instance-{index}" if self.is_static else None)
        watch = CommittedWatch(self._new_member(), self.history)
        self.world.spawn("watch", watch.run)

    def _new_member(self) -> Member:
        number, world = self._members_started, self.world
        self._members_started += 1
        rng, partitions = world.rng(f"member/{number}"), self.scenario.partitions
        member = self.member_type(number, "g", TOPIC, partitions, world.hosts, rng, self.history, world.trace)
        member.commits_metadata = self.commits_metadata
        return member

    def _start_member(self, instance_id: str | None) -> None:
        member = self._new_member()
        member.instance_id = instance_id
        self._members[member] = self.world.spawn(member.name, member.run)

    def kill_client(self, rng: Random) -> None:
        if rng.random() < 0.3:
            super().kill_client(rng)
            return
        member = list(self._members)[rng.randrange(1000) % len(self._members)]
        self.world.kill_client(self._members.pop(member))
        self._start_member(member.instance_id)

    async def finish_own(self, stored: Stored, ends: dict[int, int]) -> list[str]:
        if await self.until(lambda: self._has_committed(ends)):
            return []
        return [stuck("the group has not committed the end of each partition")]

    def _has_committed(self, ends: dict[int, int]) -> bool:
        """Whether the group has the end of each partition. A commit may be stored although its answer was an error."""
        reached = dict.fromkeys(ends, 0)
        commits = [(each.partition, each.offset) for each in self.history.commits]
        answers = [(each.partition, each.offset) for each in self.history.committed]
        for partition, offset in commits + answers:
            reached[partition] = max(reached[partition], offset)
        return all(reached[partition] >= end for partition, end in ends.items())


class ClassicGroup(GroupWorkload):
    member_type = ClassicMember


class ConsumerGroup(GroupWorkload):
    member_type = ConsumerMember
    commits_metadata = True


class StaticClassicGroup(ClassicGroup):
    is_static = True


class StaticConsumerGroup(ConsumerGroup):
    is_static = True


class Transactions(Workload):
    """Copiers of each partition into another topic, and a read_committed reader of that."""

    copier_type = Copier

    def __init__(self, world: World, scenario: Scenario) -> None:
        super().__init__(world, scenario)
        self.copies = History()
        self._numbers = itertools.count(1)
        self._copiers: dict[int, tuple[Copier, Process]] = {}
        self._copiers_started = 0
        self._copy_readers: list[SessionReader] = []

    @property
    def topics(self) -> dict[str, dict[str, str]]:
        return {TOPIC: self.scenario.topic_configs, COPIES: self.scenario.topic_configs}

    def start(self) -> None:
        super().start()
        for partition in range(self.scenario.partitions):
            self._start_copier(partition)
        world, partitions = self.world, self.scenario.partitions
        rng = world.rng("reader/copies")
        reader = Reader(100, COPIES, partitions, world.hosts, rng, self.copies, read_committed=True)
        world.spawn(reader.name, reader.run)
        for number in range(101, 101 + self.scenario.session_readers):
            self._copy_readers.append(self._start_session_reader(number, COPIES, self.copies, read_committed=True))

    def _start_copier(self, partition: int) -> None:
        world = self.world
        self._copiers_started += 1
        copier = self.copier_type(
            partition,
            TOPIC,
            COPIES,
            self.scenario.partitions,
            world.hosts,
            world.rng(f"copier/{self._copiers_started}"),
            VirtualClock(world.loop),
            self.copies,
            world.trace,
            self._numbers,
            self.scenario.patience_s,
        )
        self._copiers[partition] = copier, world.spawn(copier.name, copier.run)

    def kill_client(self, rng: Random) -> None:
        if rng.random() < 0.3:
            super().kill_client(rng)
            return
        partition = rng.randrange(self.scenario.partitions)
        self.world.kill_client(self._copiers[partition][1])
        self._start_copier(partition)

    async def finish_own(self, stored: Stored, ends: dict[int, int]) -> list[str]:
        if not await self._everything_is_copied(ends):
            return [stuck("not everything is copied")]
        partitions = self.scenario.partitions
        visible = begin_reading(self.world, COPIES, partitions, read_committed=True)
        sources = begin_reading(self.world, COPIES, partitions, read_committed=True, decode=source_of)
        if not await self.until(lambda: len(visible.ends) == len(sources.ends) == partitions):
            return [stuck("the copies cannot be read to their end: a transaction stays open")]
        if not await self.until(lambda: all(each.has_read(visible.ends) for each in self._copy_readers)):
            return [stuck("readers of the copies are not at the end")]
        await self.until(lambda: not self.compare_copies(visible), REPAIR_S, 3.0)
        produced = [value for log in stored.values() for value in log.values()]
        return [
            *checks.torn_transactions(self.copies, visible.logs),
            *checks.precommitted_reads(self.copies),
            *checks.inconsistent_reads(self.copies, visible.logs),
            *checks.nonmonotonic_polls(self.copies, visible.logs),
            *checks.copied_once(produced, sources.logs),
            *self.compare_copies(visible),
        ]

    def compare_copies(self, visible: TopicContent) -> list[str]:
        """Return the differences between replicas of the copies, given what a consumer reads of them."""
        return compare_replicas(self.world, COPIES, visible.ends)

    async def _everything_is_copied(self, ends: dict[int, int]) -> bool:
        """Wait until all is copied, while something is: with slow disks, transactions take seconds each."""

        def left() -> int:
            return sum(max(ends[partition] - copier.position, 0) for partition, (copier, _) in self._copiers.items())

        before = left()
        while before and not await self.until(lambda: not left()):
            if left() >= before:
                return False
            before = left()
        return True
