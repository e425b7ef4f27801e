"""Runs a group for a test, which controls the time, sends the members' requests and reads the responses."""

from __future__ import annotations

import itertools
import struct
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from skylog.errors import ErrorCode, KafkaError
from skylog.groups import Effect, Group, JoinRequest, JoinResponse, StoreGroup, SyncResponse

SESSION_MS = 10_000
REBALANCE_MS = 60_000
_numbers = itertools.count()


def subscription(*topics: str, owned: bytes = b"") -> bytes:
    """A consumer's metadata: version, topics, no user data, and `owned` for the data an assignor may add."""
    data = struct.pack(">hi", 1, len(topics))
    for topic in topics:
        data += struct.pack(">h", len(topic)) + topic.encode()
    return data + struct.pack(">i", -1) + owned


RANGE = (("range", subscription("t")),)


@dataclass(frozen=True)
class Asked:
    """A request that waits, by its number."""

    number: int


class GroupDriver:
    """Runs a group and keeps its responses by request. `stores` counts the StoreGroup effects."""

    def __init__(self, **options: Any) -> None:
        self.group = Group("g", **options)
        self.now_ms = 1_000_000
        self.answers: dict[Asked, JoinResponse | SyncResponse] = {}
        self.stores = 0

    def run(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, StoreGroup):
                self.stores += 1
            else:
                assert effect.token not in self.answers, "a request is answered twice"
                self.answers[effect.token] = effect

    def pass_ms(self, duration_ms: int, step_ms: int = 100) -> None:
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            self.now_ms = min(self.now_ms + step_ms, end_ms)
            self._check_next_tick()
            self.run(self.group.tick(self.now_ms))

    def _check_next_tick(self) -> None:
        """Check that a tick before `next_tick_ms` changes nothing."""
        if self.group.next_tick_ms is None or self.now_ms < self.group.next_tick_ms:
            shadow = deepcopy(self.group)
            shadow.next_tick_ms = 0
            assert shadow.tick(self.now_ms) == [], f"a tick is due at {self.now_ms}, not at {self.group.next_tick_ms}"

    # -- requests

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 7,
    ) -> Asked:
        asked = Asked(next(_numbers))
        request = JoinRequest(
            member_id=member_id,
            instance_id=instance,
            client_id="client",
            client_host="/127.0.0.1",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=protocols,
            needs_known_id=version >= 4,
            knows_skip_assignment=version >= 9,
        )
        self.run(self.group.join(request, asked, self.now_ms))
        return asked

    def join_known(self, **options: Any) -> tuple[str, Asked]:
        """Both steps of a new dynamic member: its id, and the join that may wait."""
        first = self.joined(self.join(**options))
        assert first.error is ErrorCode.MEMBER_ID_REQUIRED
        return first.member_id, self.join(first.member_id, **options)

    def sync(
        self,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        **options: Any,
    ) -> Asked:
        asked = Asked(next(_numbers))
        generation = options.pop("generation", self.group.generation)
        given = (assignments or {}).items()
        self.run(self.group.sync(member_id, instance, generation, given, asked, self.now_ms, **options))
        return asked

    def heartbeat(self, member_id: str, generation: int | None = None, instance: str | None = None) -> ErrorCode:
        number = self.group.generation if generation is None else generation
        try:
            self.group.heartbeat(member_id, instance, number, self.now_ms)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def leave(self, member_id: str = "", instance: str | None = None) -> ErrorCode:
        try:
            self.run(self.group.leave(member_id, instance, self.now_ms))
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def commit(self, member_id: str = "", generation: int = -1, instance: str | None = None) -> ErrorCode:
        try:
            self.group.check_commit(member_id, instance, generation, self.now_ms)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    # -- answers

    def waits(self, asked: Asked) -> bool:
        return asked not in self.answers

    def joined(self, asked: Asked) -> JoinResponse:
        answer = self.answers[asked]
        assert isinstance(answer, JoinResponse)
        return answer

    def synced(self, asked: Asked) -> SyncResponse:
        answer = self.answers[asked]
        assert isinstance(answer, SyncResponse)
        return answer

    # -- stable groups

    def stable(self, count: int = 2, instances: tuple[str | None, ...] = (), **options: Any) -> list[str]:
        """A stable group of `count` members; the ids, the leader's first. Each is assigned its own number."""
        ids: list[str] = []
        for index in range(count):
            instance = instances[index] if index < len(instances) else None
            if instance is None:
                member_id, _ = self.join_known(**options)
            else:
                self.join(instance=instance, **options)
                member_id = list(self.group.members)[-1]
            for known in ids:
                assert self.heartbeat(known) is ErrorCode.REBALANCE_IN_PROGRESS
                self.join(known, instance=self.group.members[known].instance_id, **options)
            ids.append(member_id)
        leader = self.group.leader
        assert leader is not None
        assignments = {member_id: str(number).encode() for number, member_id in enumerate(ids)}
        for member_id in ids:
            member = self.group.members[member_id]
            self.sync(member_id, assignments if member_id == leader else None, instance=member.instance_id)
        assert self.group.state.value == "Stable"
        return [leader, *(member_id for member_id in ids if member_id != leader)]
