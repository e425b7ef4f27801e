"""Members of consumer groups, one class for each client, all with the same face.

A member polls by itself, on a thread, a loop or in a driver process, so that several can be in one group. A peer that
is a `GroupPeer` makes members and administers groups.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import aiokafka
import kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as AioSticky
from confluent_kafka import Consumer, KafkaException, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.present import present

from .driven import Driver
from .peer import PATIENCE_S

SESSION_MS = 6000
HEARTBEAT_MS = 300

KAFKA_PYTHON_ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
AIOKAFKA_ASSIGNORS = {"range": AioRange, "roundrobin": AioRoundRobin, "sticky": AioSticky}


@dataclass(frozen=True)
class Wish:
    """What a member asks for. `reset` is earliest, latest or none, `protocol` is classic or consumer.

    In the consumer protocol the first assignor is the broker's, and a topic that begins with ^ is a regular expression.
    """

    group: str
    topic: str
    assignors: tuple[str, ...] = ("range",)
    reset: str = "earliest"
    instance: str | None = None
    protocol: str = "classic"


@dataclass
class Seen:
    """A member's own account. `revoked` has every partition that it has ever had to give up."""

    assignment: set[int] = field(default_factory=set)
    assignments: int = 0
    revoked: set[int] = field(default_factory=set)
    read: set[tuple[int, int]] = field(default_factory=set)
    error: int | None = None

    def on_assign(self, partitions: Sequence[Any]) -> None:
        self.assignment |= {each.partition for each in partitions}
        self.assignments += 1

    def on_revoke(self, partitions: Sequence[Any]) -> None:
        self.assignment -= {each.partition for each in partitions}
        self.revoked |= {each.partition for each in partitions}


class Member(Protocol):
    def look(self) -> Seen: ...

    def commit(self, partition: int, offset: int, metadata: str = "") -> None: ...

    def close(self) -> None: ...


class _Threaded:
    """A member whose client must be used from one thread: `_poll` is called there again and again."""

    def __init__(self) -> None:
        self._seen = Seen()
        self._lock = threading.Lock()
        self._tasks: list[tuple[Callable[[], None], threading.Event, list[BaseException]]] = []
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._open()
        while not self._leaving.is_set():
            self._poll()
            with self._lock:
                tasks, self._tasks = self._tasks, []
            for task, done, failures in tasks:
                try:
                    task()
                except BaseException as failure:
                    failures.append(failure)
                done.set()
        self._shut()

    def _do(self, task: Callable[[], None]) -> None:
        done, failures = threading.Event(), list[BaseException]()
        with self._lock:
            self._tasks.append((task, done, failures))
        assert done.wait(PATIENCE_S)
        if failures:
            raise failures[0]

    def look(self) -> Seen:
        with self._lock:
            seen = self._seen
            return Seen(set(seen.assignment), seen.assignments, set(seen.revoked), set(seen.read), seen.error)

    def close(self) -> None:
        self._leaving.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def _open(self) -> None:
        raise NotImplementedError

    def _poll(self) -> None:
        raise NotImplementedError

    def _shut(self) -> None:
        raise NotImplementedError


class ConfluentMember(_Threaded):
    def __init__(self, bootstrap: str, wish: Wish) -> None:
        self._topic = wish.topic
        config = {
            "bootstrap.servers": bootstrap,
            "group.id": wish.group,
            "auto.offset.reset": {"none": "error"}.get(wish.reset, wish.reset),
            "enable.auto.commit": False,
        }
        if wish.protocol == "consumer":
            config |= {"group.protocol": "consumer", "group.remote.assignor": wish.assignors[0]}
        else:
            config |= {
                "partition.assignment.strategy": ",".join(wish.assignors),
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
            }
        self._consumer = Consumer(config | ({"group.instance.id": wish.instance} if wish.instance else {}))
        super().__init__()

    def _open(self) -> None:
        def on_assign(_: Consumer, partitions: list[TopicPartition]) -> None:
            with self._lock:
                self._seen.on_assign(partitions)

        def on_revoke(_: Consumer, partitions: list[TopicPartition]) -> None:
            with self._lock:
                self._seen.on_revoke(partitions)

        self._consumer.subscribe([self._topic], on_assign=on_assign, on_revoke=on_revoke)

    def _poll(self) -> None:
        message = self._consumer.poll(0.05)
        if message is None:
            return
        with self._lock:
            if message.error() is None:
                self._seen.read.add((present(message.partition()), present(message.offset())))
            else:
                self._seen.error = present(message.error()).code()

    def commit(self, partition: int, offset: int, metadata: str = "") -> None:
        place = TopicPartition(self._topic, partition, offset, metadata)

        def commit() -> None:
            for done in self._consumer.commit(offsets=[place], asynchronous=False):
                if done.error is not None:
                    raise KafkaException(done.error)

        self._do(commit)

    def _shut(self) -> None:
        self._consumer.close()


class KafkaPythonMember(_Threaded):
    def __init__(self, bootstrap: str, wish: Wish) -> None:
        self._topic = wish.topic
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=wish.group,
            group_instance_id=wish.instance,
            partition_assignment_strategy=[KAFKA_PYTHON_ASSIGNORS[name] for name in wish.assignors],
            auto_offset_reset=wish.reset,
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            fetch_max_wait_ms=100,
        )
        super().__init__()

    def _open(self) -> None:
        member = self

        class Listener(kafka.ConsumerRebalanceListener):
            def on_partitions_revoked(self, revoked: Any) -> None:
                with member._lock:
                    member._seen.on_revoke(list(revoked))

            def on_partitions_assigned(self, assigned: Any) -> None:
                with member._lock:
                    member._seen.on_assign(list(assigned))

        self._consumer.subscribe([self._topic], listener=Listener())

    def _poll(self) -> None:
        try:
            # A poll whose time is up between the answers to its join and its sync loses the assignment for good, so
            # that short ones fail now and then.
            found = self._consumer.poll(timeout_ms=1000)
        except kafka.errors.NoOffsetForPartitionError:
            with self._lock:
                self._seen.error = -1
            self._leaving.wait(0.1)
            return
        with self._lock:
            self._seen.read |= {(each.partition, each.offset) for batch in found.values() for each in batch}

    def commit(self, partition: int, offset: int, metadata: str = "") -> None:
        place = kafka.TopicPartition(self._topic, partition)
        self._do(lambda: self._consumer.commit({place: kafka.structs.OffsetAndMetadata(offset, metadata, -1)}))

    def _shut(self) -> None:
        self._consumer.close(autocommit=False)


class AiokafkaMember:
    """On an event loop of its own."""

    def __init__(self, bootstrap: str, wish: Wish) -> None:
        self._seen = Seen()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._topic = wish.topic
        self._reading: asyncio.Task[None] | None = None
        self._run(self._start(bootstrap, wish))

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)

    async def _start(self, bootstrap: str, wish: Wish) -> None:
        seen = self._seen

        class Listener(aiokafka.ConsumerRebalanceListener):
            async def on_partitions_revoked(self, revoked: Any) -> None:
                seen.on_revoke(list(revoked))

            async def on_partitions_assigned(self, assigned: Any) -> None:
                seen.on_assign(list(assigned))

        self._consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=wish.group,
            group_instance_id=wish.instance,
            partition_assignment_strategy=[AIOKAFKA_ASSIGNORS[name] for name in wish.assignors],
            auto_offset_reset=wish.reset,
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            fetch_max_wait_ms=100,
        )
        self._consumer.subscribe([self._topic], listener=Listener())
        await self._consumer.start()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while True:
            try:
                found = await self._consumer.getmany(timeout_ms=50)
            except aiokafka.errors.NoOffsetForPartitionError:
                self._seen.error = -1
                return
            self._seen.read |= {(each.partition, each.offset) for batch in found.values() for each in batch}

    async def _look(self) -> Seen:
        seen = self._seen
        return Seen(set(seen.assignment), seen.assignments, set(seen.revoked), set(seen.read), seen.error)

    def look(self) -> Seen:
        seen: Seen = self._run(self._look())
        return seen

    def commit(self, partition: int, offset: int, metadata: str = "") -> None:
        place = aiokafka.TopicPartition(self._topic, partition)
        self._run(self._consumer.commit({place: (offset, metadata)}))

    async def _stop(self) -> None:
        assert self._reading is not None
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await self._consumer.stop()

    def close(self) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()


class DrivenMember:
    """In a driver process, by its number there."""

    def __init__(self, driver: Driver, wish: Wish) -> None:
        self._driver = driver
        self._number = driver.ask(
            "member_start",
            group=wish.group,
            topic=wish.topic,
            assignors=wish.assignors,
            reset=wish.reset,
            instance=wish.instance,
            protocol=wish.protocol,
        )

    def look(self) -> Seen:
        found = self._driver.ask("member_look", member=self._number)
        read = {(partition, offset) for partition, offset in found["read"]}
        return Seen(set(found["assignment"]), found["assignments"], set(found["revoked"]), read, found["error"])

    def commit(self, partition: int, offset: int, metadata: str = "") -> None:
        self._driver.ask("member_commit", member=self._number, partition=partition, offset=offset, metadata=metadata)

    def close(self) -> None:
        self._driver.ask("member_stop", member=self._number)
