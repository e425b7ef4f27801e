"""Runs a consumer group for a test, which controls the time, changes topics and sends the members' heartbeats."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from skylog.errors import ErrorCode, KafkaError
from skylog.groups import ConsumerGroupConfig, GroupConfig, Groups
from skylog.groups.consumer import (
    ASSIGNORS,
    ConsumerGroup,
    Heartbeat,
    HeartbeatResponse,
    Partitions,
    ResolvedPattern,
    leaves,
    patterns,
)
from skylog.groups.consumer.partitions import size

SESSION_MS = 45_000
REBALANCE_MS = 60_000


@dataclass(frozen=True)
class FakePartition:
    replicas: tuple[int, ...] = (1,)


@dataclass(frozen=True)
class FakeTopic:
    topic_id: UUID
    partitions: tuple[FakePartition, ...]


@dataclass(frozen=True)
class Client:
    """A member from its own side: what it knows from the responses."""

    member_id: str
    epoch: int = 0
    owned: Partitions = field(default_factory=dict)
    instance_id: str | None = None
    topics: frozenset[str] = frozenset({"t"})
    pattern: str | None = None
    assignor: str | None = None
    rack_id: str | None = None

    @property
    def count(self) -> int:
        return size(self.owned)


class GroupDriver:
    """Runs a group, and stores it after each step as the broker does."""

    def __init__(self, topics: dict[str, int] | None = None, **config: Any) -> None:
        self.config = ConsumerGroupConfig(**config)
        self.now_ms = 1_000_000
        self.topics: dict[str, FakeTopic] = {}
        self.racks: dict[int, str] = {}
        self._ids = 0
        for name, count in (topics or {"t": 6}).items():
            self.set_topic(name, count)
        self.groups = Groups(GroupConfig(), self.config, self.racks)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.group = ConsumerGroup("g", self.config, racks=self.racks)
        self.groups.put(self.group)

    # -- topics

    def set_topic(self, name: str, count: int, *brokers: int) -> UUID:
        """Create or change a topic, whose partitions have one replica each, on these brokers in turn."""
        known = self.topics.get(name)
        self._ids += known is None
        topic_id = UUID(int=self._ids) if known is None else known.topic_id
        replicas = brokers or (1,)
        partitions = tuple(FakePartition((replicas[number % len(replicas)],)) for number in range(count))
        self.topics = {**self.topics, name: FakeTopic(topic_id, partitions)}
        return topic_id

    def delete_topic(self, name: str) -> None:
        self.topics = {key: topic for key, topic in self.topics.items() if key != name}

    # -- requests

    def send(self, heartbeat: Heartbeat) -> HeartbeatResponse:
        try:
            return self.group.leave(heartbeat) if leaves(heartbeat) else self._heartbeat(heartbeat)
        finally:
            self.store()

    def _heartbeat(self, heartbeat: Heartbeat) -> HeartbeatResponse:
        group, names = self.group, tuple(self.topics)
        old = group.patterns_older_than(self.topics)
        group.resolve({each: ResolvedPattern(patterns.match(each, names), self.now_ms) for each in old})
        matched = patterns.match(heartbeat.pattern, names) if heartbeat.pattern else frozenset()
        group.update(heartbeat, self.topics, self.now_ms, ResolvedPattern(matched, self.now_ms))
        self.assign()
        return group.respond(heartbeat, self.now_ms)

    def assign(self) -> None:
        given = self.group.assignment_input(self.topics)
        if given is not None:
            self.group.set_target(self.group.epoch, ASSIGNORS[self.group.assignor](given))

    def store(self) -> None:
        changes = self.group.take_changes()
        if changes:
            self.log += self.groups.change_records(self.group, changes, self.now_ms)

    def join(self, member_id: str, **options: Any) -> Client:
        return self.beat(Client(member_id, **options))

    def beat(self, client: Client, *, full: bool = False, reports: bool = True) -> Client:
        """Send a heartbeat and apply the response. The client gives up at once what it is not assigned."""
        joins = client.epoch == 0
        says_all = joins or full
        heartbeat = Heartbeat(
            client.member_id,
            client.epoch,
            client.instance_id if says_all else None,
            client.rack_id if says_all else None,
            REBALANCE_MS if says_all else -1,
            client.topics if says_all and client.pattern is None else None,
            client.pattern if says_all else None,
            client.assignor if says_all else None,
            client.owned if reports or says_all else None,
            "client",
            "/127.0.0.1",
        )
        response = self.send(heartbeat)
        owned = client.owned if response.assigned is None else response.assigned
        return replace(client, epoch=response.epoch, owned=owned)

    def leave(self, client: Client, epoch: int = -1) -> None:
        self.send(Heartbeat(client.member_id, epoch, client.instance_id))

    def error(self, heartbeat: Heartbeat) -> ErrorCode:
        try:
            self.send(heartbeat)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def advance(self, client: Client) -> Client:
        """Send the heartbeats with which one member reaches its target as far as the others let it."""
        for _ in range(4):
            client = self.beat(client)
        return client

    def settle(self, *clients: Client) -> list[Client]:
        """Send heartbeats until the group is stable."""
        current = list(clients)
        for _ in range(20):
            current = [self.beat(each) for each in current]
            if self.group.state.value == "Stable":
                return current
        raise AssertionError(f"the group is still {self.group.state.value}")

    # -- time and restarts

    def pass_ms(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self.group.tick(self.now_ms)
        self.store()

    def restart(self) -> None:
        """Load the group from what was stored."""
        self.groups = Groups(GroupConfig(), self.config, self.racks)
        for key, value in self.log:
            self.groups.replay(key, value)
        found = self.groups.find("g")
        if isinstance(found, ConsumerGroup):
            self.group = found
        else:
            self.group = ConsumerGroup("g", self.config, racks=self.racks)
            self.groups.put(self.group)
        self.group.loaded(self.now_ms)
