"""The classic rebalance protocol of one consumer group, as a pure state machine.

Events (join, sync, heartbeat, leave, the passing of time) go in; a result and effects come out. Time is handed in,
nothing here waits, writes or sends. States (`state.TRANSITIONS` has the whole table)::

    EMPTY ──join──▶ PREPARING ──all joined, or time up──▶ COMPLETING ──leader's sync──▶ STABLE
      ▲                 ▲  │                                  │                           │
      │                 └──┼──── join, leave, session over ◀──┴───────────────────────────┘
      └────────────────────┘ nobody is left

PREPARING waits for every known member to join again; those who do not by the rebalance timeout are out, static ones
excepted, whose session decides. COMPLETING waits for the leader's assignment, and for everybody's sync no longer than
the rebalance timeout. Generations count rebalances; whoever speaks of another one has missed something.

Rules that clients rely on:

* While a member waits for the answer to its join or sync it is alive, whatever its session timeout says.
* A member of a rebalance that is under way is told REBALANCE_IN_PROGRESS, never UNKNOWN_MEMBER_ID.
* A static member (with an instance id, KIP-345) that comes back under a new member id takes the place of the old one,
  without a rebalance where nothing else has changed; the old id is fenced.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from skylog.errors import ErrorCode, KafkaError
from skylog.groups.effects import Effect, JoinAnswer, StoreGroup, SyncAnswer
from skylog.groups.member import JoinRequest, Member, Token
from skylog.groups.protocols import can_join, choose_protocol
from skylog.groups.roster import Roster
from skylog.groups.state import TRANSITIONS, GroupState
from skylog.groups.subscription import same_topics, subscribed_topics

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""How long a new member may wait for its first join: a client that gave up has nothing else to be known dead by."""


class Group:
    """One group. Called by its coordinator, from one thread, with the time of the event."""

    def __init__(self, group_id: str, initial_delay_ms: int = 0, max_size: int = 1 << 31) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self._roster = Roster()
        self._initial_delay_ms = initial_delay_ms
        self._max_size = max_size
        self._rebalance_ends_ms = 0
        self._earliest_end_ms = 0
        self._sync_ends_ms = 0
        self._stores_under_way = 0
        self.next_tick_ms: int | None = None  # see `tick`; 0 whenever something new may run out

    @property
    def members(self) -> dict[str, Member]:
        """By member id, in the order in which they came."""
        return self._roster.members

    @property
    def is_idle(self) -> bool:
        """Nobody is a member or about to become one."""
        return self.state is GroupState.EMPTY and not self._roster.has_pending and not self._stores_under_way

    def subscribed_topics(self) -> set[str] | None:
        """The topics that the members read; None where only they know."""
        return subscribed_topics(self.protocol_type, self.members.values()) if self.members else set()

    # -- joining

    def join(self, request: JoinRequest, token: Token, now_ms: int) -> list[Effect]:
        """A member joins, or joins again. The answer may come now or when the rebalance is done."""
        try:
            return self._join(request, token, now_ms)
        except KafkaError as error:
            return [JoinAnswer(token, error.code, member_id=request.member_id)]

    def _join(self, request: JoinRequest, token: Token, now_ms: int) -> list[Effect]:
        self._check_alive()
        self._check_size(request)
        self._check_protocols(request)
        if not request.member_id:
            return self._join_new(request, token, now_ms)
        if request.instance_id is None and self._roster.redeem(request.member_id):
            return self._add(request.member_id, request, token, now_ms)
        member = self._find(request.member_id, request.instance_id)
        return self._join_again(member, request, token, now_ms)

    def _check_size(self, request: JoinRequest) -> None:
        """The limit may have been lowered under a group: then whoever joins last in a rebalance is refused."""
        member = self._roster.of_request(request)
        if self.state is GroupState.PREPARING:
            is_in, size = member is not None and member.join is not None, len(self._roster.joined)
        else:
            is_in, size = member is not None, len(self.members)
        if not is_in and size >= self._max_size:
            self._roster.redeem(request.member_id)
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)

    def _check_protocols(self, request: JoinRequest) -> None:
        wanted_type = self.protocol_type if self.members else request.protocol_type or None
        if request.protocol_type != wanted_type or not can_join(request.protocols, self.members.values()):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _join_new(self, request: JoinRequest, token: Token, now_ms: int) -> list[Effect]:
        member_id = f"{request.instance_id or request.client_id}-{uuid.uuid4()}"
        if request.instance_id is not None:
            old = self._roster.static_member(request.instance_id)
            if old is not None:
                return self._replace_static(old, member_id, request, token, now_ms)
        elif request.needs_known_id:
            self._roster.promise(member_id, request.session_timeout_ms, now_ms)
            self.next_tick_ms = 0
            return [JoinAnswer(token, ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)]
        return self._add(member_id, request, token, now_ms)

    def _add(self, member_id: str, request: JoinRequest, token: Token, now_ms: int) -> list[Effect]:
        member = Member.from_request(member_id, request)
        member.join, member.is_new = token, True
        member.expires_at_ms = now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS
        if not self.members:
            self.protocol_type = request.protocol_type
        self._roster.add(member)
        return self._prepare(now_ms, grew=True)

    def _replace_static(
        self, old: Member, member_id: str, request: JoinRequest, token: Token, now_ms: int
    ) -> list[Effect]:
        """A static member is back under a new id. Nobody else needs to know if it still wants the same topics."""
        effects: list[Effect] = []
        if old.join is not None:
            effects.append(JoinAnswer(old.join, ErrorCode.FENCED_INSTANCE_ID, member_id=old.member_id))
        if old.sync is not None:
            effects.append(SyncAnswer(old.sync, ErrorCode.FENCED_INSTANCE_ID))
        member = Member.from_request(member_id, request)
        member.assignment, member.has_synced = old.assignment, old.has_synced
        member.touch(now_ms)
        self._roster.drop(old)
        self._roster.add(member)
        self.next_tick_ms = 0  # its session may be shorter than the old one's
        old_leader = self.leader
        if old_leader == old.member_id:
            self.leader = member_id
        if self.state is GroupState.STABLE and self._is_still_assigned(old, member):
            # Told that it leads, it would assign anew, which a stable group does not take. From version 9 on it is told
            # not to; before, the leader it hears of is the one that it was (KIP-814).
            leads = request.knows_skip_assignment and self.leader == member_id
            answer = self._join_answer(member, token, leads=leads)
            shown = self.leader if request.knows_skip_assignment else old_leader
            return [*effects, StoreGroup(), replace(answer, leader=shown or "", skip_assignment=leads)]
        member.join = token
        return effects + self._prepare(now_ms, grew=False)

    def _is_still_assigned(self, old: Member, new: Member) -> bool:
        """Whether the present assignment suits the new incarnation of a static member."""
        wants_same = same_topics(self.protocol_type, old.metadata(self.protocol), new.metadata(self.protocol))
        return wants_same and choose_protocol(self.members.values()) == self.protocol

    def _join_again(self, member: Member, request: JoinRequest, token: Token, now_ms: int) -> list[Effect]:
        unchanged = member.protocols == request.protocols
        member.is_new = False
        member.touch(now_ms)
        is_leader = member.member_id == self.leader
        if self.state is GroupState.COMPLETING and unchanged:
            return [self._join_answer(member, token, leads=is_leader)]
        if self.state is GroupState.STABLE and unchanged and not is_leader:
            return [self._join_answer(member, token)]
        effects: list[Effect] = []
        if member.join is not None:  # it asked again on a new connection; the old question gets no assignment
            effects.append(JoinAnswer(member.join, ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id))
        member.protocols = request.protocols
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.join = token
        return effects + self._prepare(now_ms, grew=False)

    # -- the rebalance

    def _prepare(self, now_ms: int, *, grew: bool) -> list[Effect]:
        """Begin a rebalance, or go on with the one that is under way."""
        self.next_tick_ms = 0
        effects: list[Effect] = []
        if self.state is not GroupState.PREPARING:
            for member in self.members.values():
                if member.sync is not None:
                    effects.append(SyncAnswer(member.sync, ErrorCode.REBALANCE_IN_PROGRESS))
                    member.sync = None
                    member.touch(now_ms)
            delay_ms = self._initial_delay_ms if self.state is GroupState.EMPTY else 0
            self._move(GroupState.PREPARING)
            self._rebalance_ends_ms = now_ms + max(self._roster.rebalance_timeout_ms, delay_ms)
            self._earliest_end_ms = now_ms + delay_ms
        elif grew and self._earliest_end_ms > now_ms:
            self._earliest_end_ms = min(now_ms + self._initial_delay_ms, self._rebalance_ends_ms)
        return effects + self._try_complete(now_ms)

    def _try_complete(self, now_ms: int) -> list[Effect]:
        if self.state is not GroupState.PREPARING or now_ms < self._earliest_end_ms:
            return []
        all_joined = self._roster.all_joined and not self._roster.awaits_pending(now_ms)
        if all_joined or now_ms >= self._rebalance_ends_ms:
            return self._complete(now_ms)
        return []

    def _complete(self, now_ms: int) -> list[Effect]:
        """Close the round: who has not joined is out, the others learn the generation and who leads."""
        for member in list(self.members.values()):
            if member.join is None and member.instance_id is None:
                self._drop(member)
        if not self.members:
            return self._empty()
        joined = self._roster.joined
        if not joined:  # only static members are left, and none has come back yet: wait for another round
            self._rebalance_ends_ms = now_ms + self._roster.rebalance_timeout_ms
            return []
        leader = self.members.get(self.leader or "")
        if leader is None or leader.join is None:
            self.leader = joined[0].member_id
        self.generation += 1
        self.protocol = choose_protocol(self.members.values())
        self._move(GroupState.COMPLETING)
        self._sync_ends_ms = now_ms + self._roster.rebalance_timeout_ms
        for member in self.members.values():
            member.has_synced = False
        effects: list[Effect] = []
        for member in joined:
            token, member.join, member.is_new = member.join, None, False
            member.touch(now_ms)
            effects.append(self._join_answer(member, token, leads=member.member_id == self.leader))
        return effects

    def _join_answer(self, member: Member, token: Token, *, leads: bool = False) -> JoinAnswer:
        return JoinAnswer(
            token,
            ErrorCode.NONE,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader or "",
            member.member_id,
            self._roster.introduce(self.protocol) if leads else (),
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
            member = self._find(member_id, instance_id, generation)
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
        if member.member_id == self.leader:
            effects += self._assign(dict(assignments), now_ms)
        return effects

    def _assign(self, assignments: dict[str, bytes], now_ms: int) -> list[Effect]:
        """The leader has decided: everyone who waits is answered once that is stored."""
        effects: list[Effect] = [StoreGroup()]
        self._move(GroupState.STABLE)
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.sync is not None:
                effects.append(self._sync_answer(member, member.sync))
                member.sync = None
                member.touch(now_ms)
        return effects

    def _sync_answer(self, member: Member, token: Token) -> SyncAnswer:
        return SyncAnswer(token, ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)

    # -- storing

    def storing(self) -> None:
        """What the group asked to be stored takes its time: answers are held back, and so no session ends."""
        self._stores_under_way += 1

    def stored(self, now_ms: int) -> None:
        """The end of `storing`, for better or worse."""
        self._stores_under_way -= 1
        self.next_tick_ms = 0
        for member in self.members.values():
            if not member.is_new:
                member.touch(now_ms)

    def storing_failed(self, now_ms: int) -> list[Effect]:
        """The state could not be written: whatever was agreed on does not hold, and everybody has to join again."""
        for member in self.members.values():
            member.assignment = b""
        return self._prepare(now_ms, grew=False) if self.members else []

    # -- living and leaving

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        """A sign of life. Raises REBALANCE_IN_PROGRESS where the member has to join again."""
        self._find(member_id, instance_id, generation).touch(now_ms)
        if self.state is GroupState.PREPARING:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def leave(self, member_id: str, instance_id: str | None, now_ms: int) -> list[Effect]:
        """A member goes. A static one may be named by its instance id alone. Raises KafkaError."""
        if self._roster.redeem(member_id):
            return self._try_complete(now_ms)
        named = None if member_id else self._roster.static_member(instance_id)
        return self._remove(named or self._find(member_id, instance_id), now_ms)

    def _remove(self, member: Member, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        if member.join is not None:
            effects.append(JoinAnswer(member.join, ErrorCode.UNKNOWN_MEMBER_ID, member_id=member.member_id))
        if member.sync is not None:
            effects.append(SyncAnswer(member.sync, ErrorCode.UNKNOWN_MEMBER_ID))
        self._drop(member)
        if self.state is GroupState.PREPARING:
            return effects + self._try_complete(now_ms)
        return effects + (self._prepare(now_ms, grew=False) if self.members else self._empty())

    def _drop(self, member: Member) -> None:
        self._roster.drop(member)
        if self.leader == member.member_id:
            self.leader = None

    def _empty(self) -> list[Effect]:
        """A round with nobody in it: the generation counts on, so that no straggler's number is right again."""
        self.generation += 1
        self.leader = self.protocol = None
        self._move(GroupState.EMPTY)
        return [StoreGroup()]

    # -- time

    def tick(self, now_ms: int) -> list[Effect]:
        """Let time pass: sessions end, rebalances run out.

        To be called when `next_tick_ms` has come, and before anybody looks at the group; it costs nothing before that.
        The time is only ever too early, never too late. None means that nothing can run out.
        """
        if self.next_tick_ms is None or now_ms < self.next_tick_ms:
            return []
        effects: list[Effect] = []
        self._roster.expire_pending(now_ms)
        if not self._stores_under_way:
            for member in self._roster.expired(now_ms):
                if member.expires_at_ms <= now_ms:  # a removal before may have ended the round, and begun sessions
                    effects += self._remove(member, now_ms)
        if self._syncs_are_due and now_ms >= self._sync_ends_ms:
            for member in self._roster.not_synced:
                effects += self._remove(member, now_ms)
        effects += self._try_complete(now_ms)
        self.next_tick_ms = self._next_moment_ms(now_ms)
        return effects

    @property
    def _syncs_are_due(self) -> bool:
        """Whether somebody got the answer to its join and has not asked for its assignment."""
        return self.state in (GroupState.COMPLETING, GroupState.STABLE) and bool(self._roster.not_synced)

    def _next_moment_ms(self, now_ms: int) -> int | None:
        """When something may run out at the earliest. Signs of life only move that further away."""
        moments = self._roster.promises_ms()
        if not self._stores_under_way:
            moments += self._roster.sessions_ms()
        if self.state is GroupState.PREPARING:
            moments += [self._earliest_end_ms, self._rebalance_ends_ms]
        elif self._syncs_are_due:
            moments.append(self._sync_ends_ms)
        return min((moment for moment in moments if moment > now_ms), default=None)

    # -- checks

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        """Raise unless a commit with these credentials counts. Generation -1 is for a group that nobody manages."""
        self._check_alive()
        if generation < 0 and self.state is GroupState.EMPTY:
            return
        self._find(member_id, instance_id, generation).touch(now_ms)
        if self.state is GroupState.COMPLETING:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def _check_alive(self) -> None:
        if self.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group is being deleted")

    def _find(self, member_id: str, instance_id: str | None, generation: int | None = None) -> Member:
        self._check_alive()
        member = self._roster.find(member_id, instance_id)
        if generation is not None and generation != self.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return member

    def _move(self, state: GroupState) -> None:
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"group {self.group_id} cannot go from {self.state.value} to {state.value}")
        self.state = state
        self.next_tick_ms = 0

    # -- deletion and restoring

    def die(self) -> None:
        """Begin to be deleted. Only a group without members can."""
        self._move(GroupState.DEAD)

    def revive(self) -> None:
        """The deletion could not be stored."""
        self._move(GroupState.EMPTY)

    def restore(
        self,
        members: Iterable[Member],
        *,
        generation: int,
        protocol_type: str | None,
        protocol: str | None,
        leader: str | None,
    ) -> None:
        """Become what the log says the group was: stable with its members, or empty. Sessions begin with `loaded`."""
        self._roster = Roster(members)
        self.generation = generation
        self.protocol_type, self.protocol, self.leader = protocol_type, protocol, leader
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY

    def loaded(self, now_ms: int) -> None:
        """The log has been read to its end: from now on members are expected to be heard of."""
        for member in self.members.values():
            member.touch(now_ms)
        self.next_tick_ms = 0
