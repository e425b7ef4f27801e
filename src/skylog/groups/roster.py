"""The members of a group by id, static members also by instance id, and the ids of pending members.

A pending member has been given an id and has not joined with it yet. This module does not know about states and
rebalances; they belong to `group`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from skylog.errors import ErrorCode, KafkaError
from skylog.groups.member import JoinRequest, Member, Protocols

PENDING_PATIENCE_MS: Final = 3_000
"""How long a rebalance waits for a pending member. Its id stays valid for longer."""


class Roster:
    """Members in the order in which they joined. An instance id belongs to the last member that joined with it.

    The members that support a protocol are counted: a large group must not be searched for each member that joins.
    """

    def __init__(self, members: Iterable[Member] = ()) -> None:
        self.members = {member.member_id: member for member in members}
        self._instances = {each.instance_id: key for key, each in self.members.items() if each.instance_id is not None}
        self._supporters = Counter(name for member in self.members.values() for name in member.supports())
        self._pending: dict[str, tuple[int, int]] = {}  # until when a rebalance waits, until when the id is valid

    def add(self, member: Member) -> None:
        self.members[member.member_id] = member
        self._supporters.update(member.supports())
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id

    def drop(self, member: Member) -> None:
        del self.members[member.member_id]
        self._end_support(member)
        if member.instance_id is not None:
            del self._instances[member.instance_id]

    def change_protocols(self, member: Member, protocols: Protocols) -> None:
        self._end_support(member)
        member.protocols = protocols
        self._supporters.update(member.supports())

    def _end_support(self, member: Member) -> None:
        for name in member.supports():
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]

    def can_join(self, protocols: Protocols) -> bool:
        """Return whether a member with these protocols shares one with all members."""
        return any(self._supporters[name] == len(self.members) for name, _ in protocols)

    def static_member(self, instance_id: str | None) -> Member | None:
        return None if instance_id is None else self.members.get(self._instances.get(instance_id, ""))

    def find(self, member_id: str, instance_id: str | None) -> Member:
        """Return a member. Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has the instance id."""
        if instance_id is not None:
            current = self._instances.get(instance_id)
            if current is not None and current != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
            if current is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def of_request(self, request: JoinRequest) -> Member | None:
        """Return the member that sent the request, or the static member that it would replace."""
        return self.members.get(request.member_id) or self.static_member(request.instance_id)

    @property
    def joined(self) -> list[Member]:
        return [member for member in self.members.values() if member.join is not None]

    @property
    def all_joined(self) -> bool:
        return all(member.join is not None for member in self.members.values())

    @property
    def not_synced(self) -> list[Member]:
        return [member for member in self.members.values() if not member.has_synced]

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        return max(member.rebalance_timeout_ms for member in self.members.values())

    def member_metadata(self, protocol: str | None) -> tuple[tuple[str, str | None, bytes], ...]:
        """Return id, instance id and metadata of each member, for the leader."""
        return tuple((each.member_id, each.instance_id, each.metadata(protocol)) for each in self.members.values())

    def expired(self, now_ms: int) -> list[Member]:
        return [each for each in self.members.values() if each.can_expire and each.expires_at_ms <= now_ms]

    # -- pending members

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    def add_pending(self, member_id: str, valid_ms: int, now_ms: int) -> None:
        self._pending[member_id] = (now_ms + min(PENDING_PATIENCE_MS, valid_ms), now_ms + valid_ms)

    def remove_pending(self, member_id: str) -> bool:
        """Remove a pending member. Return whether the id was pending."""
        return self._pending.pop(member_id, None) is not None

    def awaits_pending(self, now_ms: int) -> bool:
        return any(patience_ms > now_ms for patience_ms, _ in self._pending.values())

    def expire_pending(self, now_ms: int) -> None:
        self._pending = {key: pair for key, pair in self._pending.items() if pair[1] > now_ms}

    def pending_deadlines_ms(self) -> list[int]:
        """Return when a rebalance stops waiting for pending members, and when their ids expire."""
        return [moment for pair in self._pending.values() for moment in pair]

    def session_deadlines_ms(self) -> list[int]:
        """Return when the sessions of members expire."""
        return [member.expires_at_ms for member in self.members.values() if member.can_expire]
