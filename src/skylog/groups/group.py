"""The classic rebalance protocol of one consumer group, as a pure state machine.

Events (join, sync, heartbeat, leave, the passing of time) go in; a result and effects come out. Time is handed in,
nothing here waits, writes or sends. States, and what leads from one to the next::

    EMPTY ──join──▶ PREPARING ──all joined, or time up──▶ COMPLETING ──leader's sync──▶ STABLE
      ▲                 ▲  │                                  │                           │
      │                 └──┼──── join, leave, session over ◀──┴───────────────────────────┘
      └────────────────────┘ nobody is left
    any ──deleted, or nothing left to keep──▶ DEAD

PREPARING waits for every known member to join again; those who do not by the rebalance timeout are out. COMPLETING
waits for the leader's assignment. Generations count rebalances; whoever speaks of another one has missed something.

Rules that clients rely on:

* While a member waits for the answer to its join or sync it is alive, whatever its session timeout says.
* A member of a rebalance that is under way is told REBALANCE_IN_PROGRESS, never UNKNOWN_MEMBER_ID.
* A static member (with an instance id, KIP-345) that comes back under a new member id takes the place of the old one,
  without a rebalance where nothing else has changed; the old id is fenced.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from skylog.errors import ErrorCode, KafkaError
from skylog.groups.effects import Effect, JoinAnswer, StoreGroup, SyncAnswer
from skylog.groups.member import Member, Token

_LONGEST_QUIET_MS: Final = 60_000


class GroupState(Enum):
    """The values are the names that DescribeGroups shows."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A member's wish to join. `member_id` is empty at first; `needs_known_id` from version 4 on (KIP-394)."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    needs_known_id: bool
    knows_skip_assignment: bool = False


class Group:
    """One group. Called by its coordinator, from one thread, with the time of the event."""

    def __init__(self, group_id: str, initial_delay_ms: int = 0, max_size: int = 1 << 31) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self._instances: dict[str, str] = {}
        self._pending: dict[str, int] = {}  # ids that were given out and have not joined yet, with their last moment
        self._initial_delay_ms = initial_delay_ms
        self._max_size = max_size
        self._rebalance_ends_ms = 0
        self._earliest_end_ms = 0
        self._sync_ends_ms = 0
        self._quiet_until_ms = 0  # `tick` has nothing to do before; 0 whenever something new may run out

    # -- joining

    def join(self, request: JoinRequest, token: Token, now_ms: int) -> list[Effect]:
        """A member joins, or joins again. The answer may come now or when the rebalance is done."""
        try:
            return self._join(request, token, now_ms)
        except KafkaError as error:
            return [JoinAnswer(token, error.code, member_id=request.member_id)]

    def _join(self, request: JoinRequest, token: Token, now_ms: int) -> list[Effect]:
        if self.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._check_size(request)
        self._check_protocols(request)
        if not request.member_id:
            return self._join_new(request, token, now_ms)
        if request.member_id in self._pending:
            del self._pending[request.member_id]
            return self._add(request.member_id, request, token, now_ms)
        member = self._find(request.member_id, request.instance_id)
        return self._join_again(member, request, token, now_ms)

    def _check_size(self, request: JoinRequest) -> None:
        if request.member_id in self.members or request.member_id in self._pending:
            return
        if request.instance_id is not None and request.instance_id in self._instances:
            return
        if len(self.members) + len(self._pending) >= self._max_size:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)

    def _check_protocols(self, request: JoinRequest) -> None:
        """All members must share a protocol, or there would be nothing to choose."""
        names = {name for name, _ in request.protocols}
        if not names or not request.protocol_type:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        others = [member for key, member in self.members.items() if key != request.member_id]
        if others and (
            request.protocol_type != self.protocol_type
            or not names.intersection(*(member.supports() for member in others))
        ):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _join_new(self, request: JoinRequest, token: Token, now_ms: int) -> list[Effect]:
        member_id = f"{request.instance_id or request.client_id}-{uuid.uuid4()}"
        if request.instance_id is not None:
            if request.instance_id in self._instances:
                return self._replace_static(member_id, request, token, now_ms)
            return self._add(member_id, request, token, now_ms)
        if request.needs_known_id:
            self._pending[member_id] = now_ms + request.session_timeout_ms
            self._quiet_until_ms = 0
            return [JoinAnswer(token, ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)]
        return self._add(member_id, request, token, now_ms)

    def _add(self, member_id: str, request: JoinRequest, token: Token, now_ms: int) -> list[Effect]:
        member = Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocol_type,
            list(request.protocols),
            join=token,
        )
        member.touch(now_ms)
        if not self.members:
            self.protocol_type = request.protocol_type
        self.members[member_id] = member
        if member.instance_id is not None:
            self._instances[member.instance_id] = member_id
        if self.leader is None:
            self.leader = member_id
        return self._prepare(now_ms, grew=True)

    def _replace_static(self, member_id: str, request: JoinRequest, token: Token, now_ms: int) -> list[Effect]:
        """A static member is back under a new id. Nobody else needs to know if it still wants the same."""
        assert request.instance_id is not None
        old = self.members.pop(self._instances[request.instance_id])
        effects: list[Effect] = []
        if old.join is not None:
            effects.append(JoinAnswer(old.join, ErrorCode.FENCED_INSTANCE_ID, member_id=old.member_id))
        if old.sync is not None:
            effects.append(SyncAnswer(old.sync, ErrorCode.FENCED_INSTANCE_ID))
        was_leader = self.leader == old.member_id
        unchanged = self.protocol is not None and old.metadata(self.protocol) == dict(request.protocols).get(
            self.protocol
        )
        member = Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocol_type,
            list(request.protocols),
            assignment=old.assignment,
        )
        member.touch(now_ms)
        self.members[member_id] = member
        self._instances[request.instance_id] = member_id
        if was_leader:
            self.leader = member_id
        if self.state is GroupState.STABLE and unchanged and self._choose_protocol() == self.protocol:
            # A leader that is told to lead would assign again; one that knows of skip_assignment is told not to.
            leads = was_leader and request.knows_skip_assignment
            effects.append(StoreGroup())
            effects.append(self._join_answer(member, token, leads=leads, skip_assignment=leads))
            return effects
        member.join = token
        return effects + self._prepare(now_ms, grew=False)

    def _join_again(self, member: Member, request: JoinRequest, token: Token, now_ms: int) -> list[Effect]:
        unchanged = member.protocols == list(request.protocols)
        member.touch(now_ms)
        is_leader = member.member_id == self.leader
        if self.state is GroupState.COMPLETING and unchanged:
            return [self._join_answer(member, token, leads=is_leader)]
        if self.state is GroupState.STABLE and unchanged and not is_leader:
            return [self._join_answer(member, token)]
        effects: list[Effect] = []
        if member.join is not None:  # it asked again on a new connection; the old question gets no assignment
            effects.append(JoinAnswer(member.join, ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id))
        member.protocols = list(request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.join = token
        return effects + self._prepare(now_ms, grew=False)

    # -- the rebalance

    def _prepare(self, now_ms: int, *, grew: bool) -> list[Effect]:
        """Begin a rebalance, or go on with the one that is under way."""
        self._quiet_until_ms = 0
        effects: list[Effect] = []
        if self.state is not GroupState.PREPARING:
            for member in self.members.values():
                if member.sync is not None:
                    effects.append(SyncAnswer(member.sync, ErrorCode.REBALANCE_IN_PROGRESS))
                    member.sync = None
                    member.touch(now_ms)
            delay_ms = self._initial_delay_ms if self.state is GroupState.EMPTY else 0
            self._move(GroupState.PREPARING)
            timeout_ms = max(member.rebalance_timeout_ms for member in self.members.values())
            self._rebalance_ends_ms = now_ms + max(timeout_ms, delay_ms)
            self._earliest_end_ms = now_ms + delay_ms
        elif grew and self._earliest_end_ms > now_ms:
            self._earliest_end_ms = min(now_ms + self._initial_delay_ms, self._rebalance_ends_ms)
        return effects + self._try_complete(now_ms)

    def _try_complete(self, now_ms: int) -> list[Effect]:
        if self.state is not GroupState.PREPARING or now_ms < self._earliest_end_ms:
            return []
        all_joined = not self._pending and all(member.join is not None for member in self.members.values())
        if all_joined or now_ms >= self._rebalance_ends_ms:
            return self._complete(now_ms)
        return []

    def _complete(self, now_ms: int) -> list[Effect]:
        """Close the round: who has not joined is out, the others learn the generation and who leads."""
        for member in list(self.members.values()):
            if member.join is None and member.instance_id is None:
                self._drop(member)
        joined = [member for member in self.members.values() if member.join is not None]
        if not self.members:
            self._empty()
            return [StoreGroup()]
        if not joined:  # only static members are left, and none has come back yet: wait for another round
            self._rebalance_ends_ms = now_ms + max(member.rebalance_timeout_ms for member in self.members.values())
            return []
        if self.leader is None or self.leader not in self.members or self.members[self.leader].join is None:
            self.leader = joined[0].member_id
        self.generation += 1
        self.protocol = self._choose_protocol()
        self._move(GroupState.COMPLETING)
        self._sync_ends_ms = now_ms + max(member.rebalance_timeout_ms for member in self.members.values())
        effects: list[Effect] = []
        for member in self.members.values():
            member.has_synced = False
        for member in joined:
            token, member.join = member.join, None
            member.touch(now_ms)
            effects.append(self._join_answer(member, token, leads=member.member_id == self.leader))
        return effects

    def _choose_protocol(self) -> str:
        """The protocol that all members know and most would take first."""
        members = list(self.members.values())
        common = set.intersection(*(member.supports() for member in members))
        votes = Counter(next(name for name, _ in member.protocols if name in common) for member in members)
        return max(votes.items(), key=lambda item: item[1])[0]

    def _join_answer(
        self, member: Member, token: Token, *, leads: bool = False, skip_assignment: bool = False
    ) -> JoinAnswer:
        everyone = [(each.member_id, each.instance_id, each.metadata(self.protocol)) for each in self.members.values()]
        return JoinAnswer(
            token,
            ErrorCode.NONE,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader or "",
            member.member_id,
            tuple(everyone) if leads else (),
            skip_assignment,
        )

    # -- syncing

    def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        assignments: Iterable[tuple[str, bytes]],
        token: Token,
        now_ms: int,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> list[Effect]:
        """A member asks for its assignment; the leader brings those of all."""
        try:
            member = self._find(member_id, instance_id)
            self._check_generation(generation)
            for given, mine in ((protocol_type, self.protocol_type), (protocol, self.protocol)):
                if given is not None and given != mine:
                    raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if self.state is GroupState.PREPARING:
                raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        except KafkaError as error:
            return [SyncAnswer(token, error.code)]
        member.touch(now_ms)
        member.has_synced = True
        if self.state is GroupState.STABLE:
            return [self._sync_answer(member, token)]
        effects: list[Effect] = []
        if member.sync is not None:
            effects.append(SyncAnswer(member.sync, ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync = token
        if member.member_id != self.leader:
            return effects
        given_to = dict(assignments)
        for each in self.members.values():
            each.assignment = given_to.get(each.member_id, b"")
        self._move(GroupState.STABLE)
        effects.append(StoreGroup())
        for each in self.members.values():
            if each.sync is not None:
                effects.append(self._sync_answer(each, each.sync))
                each.sync = None
                each.touch(now_ms)
        return effects

    def _sync_answer(self, member: Member, token: Token) -> SyncAnswer:
        return SyncAnswer(token, ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)

    def storing_failed(self, now_ms: int) -> list[Effect]:
        """The state could not be written: whatever was agreed on does not hold, and everybody has to join again."""
        for member in self.members.values():
            member.assignment = b""
        return self._prepare(now_ms, grew=False) if self.members else []

    # -- living and leaving

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        """A sign of life. Raises REBALANCE_IN_PROGRESS where the member has to join again."""
        member = self._find(member_id, instance_id)
        self._check_generation(generation)
        member.touch(now_ms)
        if self.state is GroupState.PREPARING:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def leave(self, member_id: str, instance_id: str | None, now_ms: int) -> list[Effect]:
        """A member goes. A static one may be named by its instance id alone. Raises KafkaError."""
        if member_id in self._pending:
            del self._pending[member_id]
            return self._try_complete(now_ms)
        if not member_id and instance_id is not None:
            member_id = self._instances.get(instance_id, "")
        return self._remove(self._find(member_id, instance_id), now_ms)

    def _remove(self, member: Member, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        if member.join is not None:
            effects.append(JoinAnswer(member.join, ErrorCode.UNKNOWN_MEMBER_ID, member_id=member.member_id))
        if member.sync is not None:
            effects.append(SyncAnswer(member.sync, ErrorCode.UNKNOWN_MEMBER_ID))
        self._drop(member)
        if self.state is GroupState.PREPARING:
            return effects + self._try_complete(now_ms)
        if self.members:
            return effects + self._prepare(now_ms, grew=False)
        self.generation += 1
        self._empty()
        return [*effects, StoreGroup()]

    def _drop(self, member: Member) -> None:
        del self.members[member.member_id]
        if member.instance_id is not None and self._instances.get(member.instance_id) == member.member_id:
            del self._instances[member.instance_id]
        if self.leader == member.member_id:
            self.leader = None

    def _empty(self) -> None:
        self.leader = self.protocol = None
        self._move(GroupState.EMPTY)

    # -- time

    def tick(self, now_ms: int) -> list[Effect]:
        """Let time pass: sessions end, rebalances run out. Costs nothing while no moment has come."""
        if now_ms < self._quiet_until_ms:
            return []
        effects: list[Effect] = []
        for member_id in [key for key, moment in self._pending.items() if moment <= now_ms]:
            del self._pending[member_id]
        for member in list(self.members.values()):
            if not member.is_waiting and member.expires_at_ms <= now_ms and member.member_id in self.members:
                effects += self._remove(member, now_ms)
        if self.state is GroupState.COMPLETING and now_ms >= self._sync_ends_ms:
            for member in [each for each in self.members.values() if not each.has_synced]:
                effects += self._remove(member, now_ms)
        effects += self._try_complete(now_ms)
        self._quiet_until_ms = self._next_moment_ms(now_ms)
        return effects

    def _next_moment_ms(self, now_ms: int) -> int:
        """When something may run out at the earliest. Signs of life only move that further away."""
        moments = [*self._pending.values(), now_ms + _LONGEST_QUIET_MS]
        moments += [member.expires_at_ms for member in self.members.values() if not member.is_waiting]
        if self.state is GroupState.PREPARING:
            moments += [moment for moment in (self._earliest_end_ms, self._rebalance_ends_ms) if moment > now_ms]
        elif self.state is GroupState.COMPLETING:
            moments.append(self._sync_ends_ms)
        return min(moments)

    # -- checks

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        """Raise unless a commit with these credentials counts. Generation -1 is for a group that nobody manages."""
        if self.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation < 0 and not self.members:
            return
        member = self._find(member_id, instance_id)
        self._check_generation(generation)
        member.touch(now_ms)
        if self.state is GroupState.COMPLETING:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def _find(self, member_id: str, instance_id: str | None) -> Member:
        if instance_id is not None:
            current = self._instances.get(instance_id)
            if current is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if current != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)

    def _move(self, state: GroupState) -> None:
        self.state = state
        self._quiet_until_ms = 0

    # -- restoring

    def restore(
        self,
        members: Iterable[Member],
        *,
        generation: int,
        protocol_type: str | None,
        protocol: str | None,
        leader: str | None,
        now_ms: int,
    ) -> None:
        """Become what the log says the group was: stable with its members, or empty."""
        self.members = {member.member_id: member for member in members}
        self._instances = {each.instance_id: key for key, each in self.members.items() if each.instance_id is not None}
        self.generation = generation
        self.protocol_type, self.protocol, self.leader = protocol_type, protocol, leader
        self._move(GroupState.STABLE if self.members else GroupState.EMPTY)
        for member in self.members.values():
            member.touch(now_ms)
