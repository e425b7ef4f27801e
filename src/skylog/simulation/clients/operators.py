"""Operators: they move replicas, delete records, and delete topics and create them again, until they are stopped.

They look into the metadata store to choose what to do, and do it through the brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final

from skylog.errors import ErrorCode
from skylog.model import TopicPartition
from skylog.net.peer import PeerError
from skylog.protocol.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from skylog.protocol.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from skylog.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from skylog.simulation.clients.admin import create_topic
from skylog.simulation.clients.connections import Connections

if TYPE_CHECKING:
    from skylog.simulation.machine import Machine
    from skylog.simulation.scenario import Scenario
    from skylog.simulation.world import World

REPLICAS: Final = 3
FIRST_FLEETING: Final = 1000
"""The number of the first producer of a topic that is created again."""


class Operator:
    """Does something now and then, until `stop`."""

    def __init__(self, name: str, world: World, rng: Random) -> None:
        self._name = name
        self._world = world
        self._rng = rng
        self._connections = Connections(name, world.hosts, rng)
        self._is_stopping = False

    def stop(self) -> None:
        self._is_stopping = True

    async def run(self) -> None:
        while not self._is_stopping:
            await asyncio.sleep(self._rng.uniform(0.3, 3.0))
            if not self._is_stopping:
                await self._act()

    async def _act(self) -> None:
        raise NotImplementedError

    async def _try(self, request: Any) -> Any:
        """Ask any broker. Return None if that fails: the next time is another try."""
        try:
            return await self._connections.ask_any(request)
        except PeerError:
            return None

    def _note(self, what: str) -> None:
        self._world.trace.add(self._name, what)


class Mover(Operator):
    """Gives partitions other replicas. A broker that is away joins; one of five is drained and leaves."""

    def __init__(self, world: World, rng: Random) -> None:
        super().__init__("mover", world, rng)

    async def _act(self) -> None:
        here = [machine for machine in self._world.machines.values() if machine.is_wanted]
        away = [machine for machine in self._world.machines.values() if not machine.is_wanted]
        if away and self._rng.random() < 0.3:
            away[0].join()
        elif len(here) > REPLICAS + 1 and self._rng.random() < 0.3:
            await self._drain(self._rng.choice(here))
        else:
            await self._move_one([machine.node_id for machine in here])

    async def _move_one(self, nodes: list[int]) -> None:
        topics = self._world.topics()
        name = self._rng.choice(sorted(topics))
        index = self._rng.randrange(len(topics[name].partitions))
        target = None if self._rng.random() < 0.15 else self._rng.sample(nodes, min(REPLICAS, len(nodes)))
        self._note(f"moves {name}-{index} to {target}")
        await self._try(_moves([(name, index, target)]))

    async def _drain(self, machine: Machine) -> None:
        """Move everything away from a broker, and stop it for good."""
        self._note(f"drains {machine.host}")
        while not self._is_stopping:
            others = [each.node_id for each in self._world.machines.values() if each.is_wanted and each is not machine]
            left = [
                (topic.name, index, self._rng.sample(others, min(REPLICAS, len(others))))
                for topic in self._world.topics().values()
                for index, partition in enumerate(topic.partitions)
                if machine.node_id in partition.replicas
            ]
            if not left:
                machine.leave()
                return
            await self._try(_moves([each for each in left if self._may_move(machine, *each[:2])]))
            await asyncio.sleep(1.0)

    def _may_move(self, machine: Machine, name: str, index: int) -> bool:
        """Whether a partition is not on its way already."""
        topic = self._world.topics().get(name)
        return topic is not None and machine.node_id not in topic.partitions[index].removing


def _moves(rows: Iterable[tuple[str, int, Sequence[int] | None]]) -> AlterPartitionReassignmentsRequest:
    topics = [
        ReassignableTopic(
            name=name,
            partitions=[
                ReassignablePartition(partition_index=index, replicas=None if target is None else list(target))
            ],
        )
        for name, index, target in rows
    ]
    return AlterPartitionReassignmentsRequest(timeout_ms=5000, topics=topics)


class Remover(Operator):
    """Deletes the older half of a partition's records. `deleted` has the offsets that brokers confirmed."""

    def __init__(self, world: World, topic: str, partitions: int, rng: Random) -> None:
        super().__init__("remover", world, rng)
        self._topic = topic
        self._partitions = partitions
        self.deleted: dict[int, int] = {}

    async def _act(self) -> None:
        partition = self._rng.randrange(self._partitions)
        machine = self._world.machines[self._rng.choice(sorted(self._world.machines))]
        replica = machine.broker and machine.broker.replicas.find(TopicPartition(self._topic, partition))
        if not replica:
            return
        offset = (replica.log.log_start_offset + replica.log.high_watermark) // 2
        row = DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=self._topic, partitions=[row])], timeout_ms=3000)
        self._note(f"deletes {self._topic}-{partition} up to {offset}")
        try:
            leader = await self._connections.leader(self._topic, partition)
            answer = (await self._connections.ask(leader.node_id, request)).topics[0].partitions[0]
        except PeerError:
            answer = None
        if answer is None or answer.error_code:
            self._connections.forget_leader(self._topic, partition)
        else:
            self._note(f"{self._topic}-{partition} begins at {answer.low_watermark}")
            self.deleted[partition] = max(self.deleted.get(partition, 0), offset)


class Recreator(Operator):
    """Creates a topic, lets it be written, and deletes it. In the end the topic is there, written by `number`."""

    def __init__(
        self,
        world: World,
        topic: str,
        scenario: Scenario,
        rng: Random,
        start_producer: Callable[[int], None],
        end_producer: Callable[[], None],
    ) -> None:
        super().__init__("recreator", world, rng)
        self._topic = topic
        self._scenario = scenario
        self._start_producer = start_producer
        self._end_producer = end_producer
        self.number = FIRST_FLEETING
        self.is_done = False

    async def run(self) -> None:
        while True:
            await create_topic(self._connections, self._topic, self._scenario.partitions, self._scenario.topic_configs)
            if await self._is_known():
                self._start_producer(self.number)
                await self._rest()
                if self._is_stopping:
                    break
            await self._delete()
            self.number += 1
        self.is_done = True

    async def _rest(self) -> None:
        for _ in range(self._rng.randrange(1, 40)):
            if not self._is_stopping:
                await asyncio.sleep(0.1)

    async def _is_known(self) -> bool:
        """Wait until no broker takes the topic for a former one. Return False if it is gone meanwhile."""
        while (topic := self._world.topics().get(self._topic)) is not None:
            brokers = [machine.broker for machine in self._world.machines.values() if machine.broker is not None]
            images = [broker.metadata.image.topics.get(self._topic) for broker in brokers]
            if brokers and all(image is not None and image.topic_id == topic.topic_id for image in images):
                return True
            await asyncio.sleep(0.1)
        return False

    async def _delete(self) -> None:
        """Delete the topic by its id, so that a late request cannot delete the next one."""
        topic = self._world.topics().get(self._topic)
        if topic is None:
            return
        self._note(f"deletes {self._topic}, written by {self.number}")
        self._end_producer()
        request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic.topic_id)], timeout_ms=3000)
        while True:
            answer = await self._try(request)
            if answer is not None and answer.responses[0].error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID):
                return
            await self._connections.pause(0.5)
