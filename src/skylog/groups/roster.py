"""Who belongs to a group: its members by id, static ones by instance id too, and ids that were only given out.

Knows nothing of states and rebalances; `group` decides what follows from who is there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from skylog.errors import ErrorCode, KafkaError
from skylog.groups.member import JoinRequest, Member

PENDING_PATIENCE_MS: Final = 3_000
"""How long a rebalance waits for a client to come back with the id it was given. The id itself is good for longer."""


class Roster:
    """Members in the order in which they came. An instance id belongs to one member at a time, the last to claim it."""

    def __init__(self, members: Iterable[Member] = ()) -> None:
        self.members = {member.member_id: member for member in members}
        self._instances = {each.instance_id: key for key, each in self.members.items() if each.instance_id is not None}
        self._pending: dict[str, tuple[int, int]] = {}  # how long a rebalance waits for an id, how long it is good

    def add(self, member: Member) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id

    def drop(self, member: Member) -> None:
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self._instances[member.instance_id]

    def static_member(self, instance_id: str | None) -> Member | None:
        return None if instance_id is None else self.members.get(self._instances.get(instance_id, ""))

    def find(self, member_id: str, instance_id: str | None) -> Member:
        """Raises UNKNOWN_MEMBER_ID, and FENCED_INSTANCE_ID for the former holder of an instance id."""
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
        """The member that asks, or that the one who asks would replace."""
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
        """The group waits as long as the most patient of its members."""
        return max(member.rebalance_timeout_ms for member in self.members.values())

    def introduce(self, protocol: str | None) -> tuple[tuple[str, str | None, bytes], ...]:
        """Id, instance id and metadata of everyone: what a leader needs to know."""
        return tuple((each.member_id, each.instance_id, each.metadata(protocol)) for each in self.members.values())

    def expired(self, now_ms: int) -> list[Member]:
        return [each for each in self.members.values() if each.can_expire and each.expires_at_ms <= now_ms]

    # -- ids that were given out and have not joined yet

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    def promise(self, member_id: str, good_ms: int, now_ms: int) -> None:
        self._pending[member_id] = (now_ms + min(PENDING_PATIENCE_MS, good_ms), now_ms + good_ms)

    def redeem(self, member_id: str) -> bool:
        """Whether the id was given out; it is now used."""
        return self._pending.pop(member_id, None) is not None

    def awaits_pending(self, now_ms: int) -> bool:
        return any(patience_ms > now_ms for patience_ms, _ in self._pending.values())

    def expire_pending(self, now_ms: int) -> None:
        self._pending = {key: pair for key, pair in self._pending.items() if pair[1] > now_ms}

    def promises_ms(self) -> list[int]:
        """When a rebalance stops waiting for ids that were given out, and when these run out."""
        return [moment for pair in self._pending.values() for moment in pair]

    def sessions_ms(self) -> list[int]:
        """When sessions run out."""
        return [member.expires_at_ms for member in self.members.values() if member.can_expire]
