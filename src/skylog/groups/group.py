"""The classic rebalance protocol of one consumer group, as a pure state machine.

Events (join, sync, heartbeat, leave, tick) and the time go in; effects come out. Nothing here waits, writes or sends.
States (`state.TRANSITIONS` has the whole table)::

    EMPTY ──join──▶ PREPARING ──all joined, or timeout──▶ COMPLETING ──leader's sync──▶ STABLE
      ▲                 ▲  │                                  │                           │
      │                 └──┼── join, leave, session expired ◀─┴───────────────────────────┘
      └────────────────────┘ no member is left

PREPARING waits for every known member to rejoin. Members that do not rejoin within the rebalance timeout are removed,
except static members, which stay until their session expires. COMPLETING waits for the leader's assignment, and for
every member's sync up to the rebalance timeout. Generations count rebalances. A request with another generation is from
a member that has missed a rebalance.

Rules that clients rely on:

* While a member waits for the response to its join or sync, its session does not expire.
* During a rebalance its members get REBALANCE_IN_PROGRESS, never UNKNOWN_MEMBER_ID.
* A static member (with an instance id, KIP-345) that rejoins with a new member id replaces the old one. This causes no
  rebalance if nothing else has changed. The old member id is fenced.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from skylog.errors import ErrorCode, KafkaError
from skylog.groups.effects import Effect, JoinResponse, StoreGroup, SyncResponse
from skylog.groups.member import JoinRequest, Member, Token
from skylog.groups.protocols import choose_protocol
from skylog.groups.roster import Roster
from skylog.groups.state import TRANSITIONS, GroupState
from skylog.groups.subscription import same_topics, subscribed_topics

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""How long the first join of a new member may wait. There is no other way to detect that the client has given up."""


class Group:
    """A consumer group. The coordinator calls it from one thread, with the time of the event."""

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
        self._stores_in_progress = 0
        self.next_tick_ms: int | None = None  # see `tick`; 0 whenever there may be an earlier deadline

    @property
    def members(self) -> dict[str, Member]:
        """The members by id, in the order in which they joined."""
        return self._roster.members

    @property
    def is_idle(self) -> bool:
        """Whether there are no members, no pending members and no stores in progress."""
        return self.state is GroupState.EMPTY and not self._roster.has_pending and not self._stores_in_progress

    def subscribed_topics(self) -> set[str] | None:
        """Return the topics that members subscribe to, None if their metadata is not that of consumers."""
        return subscribed_topics(self.protocol_type, self.members.values()) if self.members else set()

    # -- joining

    def join(self, request: JoinRequest, token: Token, now_ms: int) -> list[Effect]:
        """Handle a join or rejoin. The response may be among the effects, or come when the rebalance completes."""
        try:
            return self._join(request, token, now_ms)
        except KafkaError as error:
            return [JoinResponse(token, error.code, member_id=request.member_id)]

    def _join(self, request: JoinRequest, token: Token, now_ms: int) -> list[Effect]:
        self._check_alive()
        self._check_size(request)
        self._check_protocols(request)
        if not request.member_id:
            return self._join_new(request, token, now_ms)
        if request.instance_id is None and self._roster.remove_pending(request.member_id):
            return self._add(request.member_id, request, token, now_ms)
        member = self._find(request.member_id, request.instance_id)
        return self._join_again(member, request, token, now_ms)

    def _check_size(self, request: JoinRequest) -> None:
        """Raise GROUP_MAX_SIZE_REACHED if the group is full.

        If a group is larger than a lowered limit, the last members to join the next rebalance are rejected.
        """
        if len(self.members) < self._max_size:
            return
        member = self._roster.of_request(request)
        if self.state is GroupState.PREPARING:
            is_in, size = member is not None and member.join is not None, len(self._roster.joined)
        else:
            is_in, size = member is not None, len(self.members)
        if not is_in and size >= self._max_size:
            self._roster.remove_pending(request.member_id)
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)

    def _check_protocols(self, request: JoinRequest) -> None:
        wanted_type = self.protocol_type if self.members else request.protocol_type or None
        if request.protocol_type != wanted_type or not self._roster.can_join(request.protocols):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _join_new(self, request: JoinRequest, token: Token, now_ms: int) -> list[Effect]:
        member_id = f"{request.instance_id or request.client_id}-{uuid.uuid4()}"
        if request.instance_id is not None:
            old = self._roster.static_member(request.instance_id)
            if old is not None:
                return self._replace_static(old, member_id, request, token, now_ms)
        elif request.needs_known_id:
            self._roster.add_pending(member_id, request.session_timeout_ms, now_ms)
            self.next_tick_ms = 0
            return [JoinResponse(token, ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)]
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
        """Replace a static member that rejoins with a new id, without a rebalance if its topics are the same."""
        effects: list[Effect] = []
        if old.join is not None:
            effects.append(JoinResponse(old.join, ErrorCode.FENCED_INSTANCE_ID, member_id=old.member_id))
        if old.sync is not None:
            effects.append(SyncResponse(old.sync, ErrorCode.FENCED_INSTANCE_ID))
        member = Member.from_request(member_id, request)
        member.assignment, member.has_synced = old.assignment, old.has_synced
        member.touch(now_ms)
        self._roster.drop(old)
        self._roster.add(member)
        self.next_tick_ms = 0  # the new session timeout may be shorter
        old_leader = self.leader
        if old_leader == old.member_id:
            self.leader = member_id
        if self.state is GroupState.STABLE and self._is_still_assigned(old, member):
            # If the response names it as the leader, the member sends a new assignment, which a stable group does not
            # accept. From version 9 on, the response sets skip_assignment; before, it names the old id (KIP-814).
            leads = request.knows_skip_assignment and self.leader == member_id
            response = self._join_response(member, token, leads=leads)
            leader = self.leader if request.knows_skip_assignment else old_leader
            return [*effects, StoreGroup(), replace(response, leader=leader or "", skip_assignment=leads)]
        member.join = token
        return effects + self._prepare(now_ms, grew=False)

    def _is_still_assigned(self, old: Member, new: Member) -> bool:
        """Return whether the current assignment is still valid after a static member was replaced."""
        has_same_topics = same_topics(self.protocol_type, old.metadata(self.protocol), new.metadata(self.protocol))
        return has_same_topics and choose_protocol(self.members.values()) == self.protocol

    def _join_again(self, member: Member, request: JoinRequest, token: Token, now_ms: int) -> list[Effect]:
        unchanged = member.protocols == request.protocols
        member.is_new = False
        member.touch(now_ms)
        is_leader = member.member_id == self.leader
        if self.state is GroupState.COMPLETING and unchanged:
            return [self._join_response(member, token, leads=is_leader)]
        if self.state is GroupState.STABLE and unchanged and not is_leader:
            return [self._join_response(member, token)]
        effects: list[Effect] = []
        if member.join is not None:  # the client sent the request again, on a new connection
            effects.append(JoinResponse(member.join, ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id))
        self._roster.change_protocols(member, request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.join = token
        return effects + self._prepare(now_ms, grew=False)

    # -- the rebalance

    def _prepare(self, now_ms: int, *, grew: bool) -> list[Effect]:
        """Start a rebalance, or continue the current one."""
        self.next_tick_ms = 0
        effects: list[Effect] = []
        if self.state is not GroupState.PREPARING:
            for member in self.members.values():
                if member.sync is not None:
                    effects.append(SyncResponse(member.sync, ErrorCode.REBALANCE_IN_PROGRESS))
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
        """Complete the join phase: remove members that have not joined, and respond to those that have."""
        for member in list(self.members.values()):
            if member.join is None and member.instance_id is None:
                self._drop(member)
        if not self.members:
            return self._empty()
        joined = self._roster.joined
        if not joined:  # only static members are left, and none has rejoined: wait for another rebalance timeout
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
            effects.append(self._join_response(member, token, leads=member.member_id == self.leader))
        return effects

    def _join_response(self, member: Member, token: Token, *, leads: bool = False) -> JoinResponse:
        return JoinResponse(
            token,
            ErrorCode.NONE,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader or "",
            member.member_id,
            self._roster.member_metadata(self.protocol) if leads else (),
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
        """Handle a member's request for its assignment; the leader's has the assignments of all members."""
        try:
            member = self._find(member_id, instance_id, generation)
            for given, mine in ((protocol_type, self.protocol_type), (protocol, self.protocol)):
                if given is not None and given != mine:
                    raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if self.state is GroupState.PREPARING:
                raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        except KafkaError as error:
            return [SyncResponse(token, error.code)]
        member.touch(now_ms)
        member.has_synced = True
        if self.state is GroupState.STABLE:
            return [self._sync_response(member, token)]
        effects: list[Effect] = []
        if member.sync is not None:
            effects.append(SyncResponse(member.sync, ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync = token
        if member.member_id == self.leader:
            effects += self._assign(dict(assignments), now_ms)
        return effects

    def _assign(self, assignments: dict[str, bytes], now_ms: int) -> list[Effect]:
        """Apply the leader's assignment, and respond to waiting members after it is stored."""
        effects: list[Effect] = [StoreGroup()]
        self._move(GroupState.STABLE)
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.sync is not None:
                effects.append(self._sync_response(member, member.sync))
                member.sync = None
                member.touch(now_ms)
        return effects

    def _sync_response(self, member: Member, token: Token) -> SyncResponse:
        return SyncResponse(token, ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)

    # -- storing

    def storing(self) -> None:
        """Note the start of a store. Responses wait for it, so sessions do not expire meanwhile."""
        self._stores_in_progress += 1

    def stored(self, now_ms: int) -> None:
        """Note the end of a store, successful or not."""
        self._stores_in_progress -= 1
        self.next_tick_ms = 0
        for member in self.members.values():
            if not member.is_new:
                member.touch(now_ms)

    def storing_failed(self, now_ms: int) -> list[Effect]:
        """Discard the assignments, which could not be stored, and start a rebalance."""
        for member in self.members.values():
            member.assignment = b""
        return self._prepare(now_ms, grew=False) if self.members else []

    # -- heartbeats and leaving

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        """Handle a heartbeat. Raises REBALANCE_IN_PROGRESS if the member has to rejoin."""
        self._find(member_id, instance_id, generation).touch(now_ms)
        if self.state is GroupState.PREPARING:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def leave(self, member_id: str, instance_id: str | None, now_ms: int) -> list[Effect]:
        """Remove a member. A static member may be given by its instance id alone. Raises KafkaError."""
        if self._roster.remove_pending(member_id):
            return self._try_complete(now_ms)
        named = None if member_id else self._roster.static_member(instance_id)
        return self._remove(named or self._find(member_id, instance_id), now_ms)

    def _remove(self, member: Member, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        if member.join is not None:
            effects.append(JoinResponse(member.join, ErrorCode.UNKNOWN_MEMBER_ID, member_id=member.member_id))
        if member.sync is not None:
            effects.append(SyncResponse(member.sync, ErrorCode.UNKNOWN_MEMBER_ID))
        self._drop(member)
        if self.state is GroupState.PREPARING:
            return effects + self._try_complete(now_ms)
        return effects + (self._prepare(now_ms, grew=False) if self.members else self._empty())

    def _drop(self, member: Member) -> None:
        self._roster.drop(member)
        if self.leader == member.member_id:
            self.leader = None

    def _empty(self) -> list[Effect]:
        """Become empty. The generation increases, so that a late request of a former member does not match it."""
        self.generation += 1
        self.leader = self.protocol = None
        self._move(GroupState.EMPTY)
        return [StoreGroup()]

    # -- time

    def tick(self, now_ms: int) -> list[Effect]:
        """Expire sessions and end rebalances whose time is over.

        Call it at `next_tick_ms`, and before any other access to the group; an earlier call costs nothing.
        `next_tick_ms` may be too early, but is never too late. None means that nothing can expire.
        """
        if self.next_tick_ms is None or now_ms < self.next_tick_ms:
            return []
        effects: list[Effect] = []
        self._roster.expire_pending(now_ms)
        if not self._stores_in_progress:
            for member in self._roster.expired(now_ms):
                # A removal may have completed the rebalance, which renews sessions and drops other members.
                if member.expires_at_ms <= now_ms and self.members.get(member.member_id) is member:
                    effects += self._remove(member, now_ms)
        if self._syncs_are_due and now_ms >= self._sync_ends_ms:
            for member in tuple(self._roster.not_synced):
                if self.members.get(member.member_id) is member:
                    effects += self._remove(member, now_ms)
        effects += self._try_complete(now_ms)
        self.next_tick_ms = self._next_deadline_ms(now_ms)
        return effects

    @property
    def _syncs_are_due(self) -> bool:
        """Whether a member has received its join response and has not sent its sync."""
        return self.state in (GroupState.COMPLETING, GroupState.STABLE) and bool(self._roster.not_synced)

    def _next_deadline_ms(self, now_ms: int) -> int | None:
        """Return the earliest deadline. Heartbeats only postpone it."""
        deadlines = self._roster.pending_deadlines_ms()
        if not self._stores_in_progress:
            deadlines += self._roster.session_deadlines_ms()
        if self.state is GroupState.PREPARING:
            deadlines += [self._earliest_end_ms, self._rebalance_ends_ms]
        elif self._syncs_are_due:
            deadlines.append(self._sync_ends_ms)
        return min((each for each in deadlines if each > now_ms), default=None)

    # -- checks

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> None:
        """Raise KafkaError unless this member may commit. Generation -1 commits for a group without members."""
        self._check_alive()
        if generation < 0 and self.state is GroupState.EMPTY:
            return
        self._find(member_id, instance_id, generation).touch(now_ms)
        if self.state is GroupState.COMPLETING:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def check_transactional_commit(self, member_id: str, instance_id: str | None, generation: int) -> None:
        """Raise KafkaError unless this member may commit in a transaction. Older producers name no member (KIP-447)."""
        self._check_alive()
        if generation < 0 and (self.state is GroupState.EMPTY or not (member_id or instance_id)):
            return
        self._find(member_id, instance_id, generation)

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

    # -- conversion to and from a consumer group

    def rebalance(self, now_ms: int) -> list[Effect]:
        """Start a rebalance, because a member that was not one of this group has left."""
        return self._prepare(now_ms, grew=False)

    def dissolve(self) -> list[JoinResponse | SyncResponse]:
        """Reject the waiting requests: the group has become a consumer group, and its members rejoin that."""
        effects: list[JoinResponse | SyncResponse] = []
        for member in self.members.values():
            if member.join is not None:
                code = ErrorCode.REBALANCE_IN_PROGRESS
                effects.append(JoinResponse(member.join, code, member_id=member.member_id))
            if member.sync is not None:
                effects.append(SyncResponse(member.sync, ErrorCode.REBALANCE_IN_PROGRESS))
        return effects

    # -- deletion and restoring

    def begin_deletion(self) -> None:
        """Mark the group as dead. It must have no members."""
        self._move(GroupState.DEAD)

    def cancel_deletion(self) -> None:
        """Make the group empty again, because its deletion could not be stored."""
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
        """Restore the stored state: stable with its members, or empty. Sessions begin with `loaded`."""
        self._roster = Roster(members)
        self.generation = generation
        self.protocol_type, self.protocol, self.leader = protocol_type, protocol, leader
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY

    def loaded(self, now_ms: int) -> None:
        """Start the sessions of restored members."""
        for member in self.members.values():
            member.touch(now_ms)
        self.next_tick_ms = 0
