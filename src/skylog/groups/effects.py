"""The effects that a group's shell performs, in order: store the group, respond to a request."""

from __future__ import annotations

from dataclasses import dataclass

from skylog.errors import ErrorCode
from skylog.groups.member import Token


@dataclass(frozen=True, slots=True)
class JoinResponse:
    """Respond to JoinGroup. `members` has the id, instance id and metadata of each member, for the leader only."""

    token: Token
    error: ErrorCode = ErrorCode.NONE
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    member_id: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncResponse:
    """Respond to SyncGroup, with the member's assignment."""

    token: Token
    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class StoreGroup:
    """Store the group's current state before performing the effects that follow.

    A shell that has to wait for this calls `Group.storing` before and `Group.stored` after it. If it fails, the shell
    calls `Group.storing_failed` and does not perform the effects that follow.
    """


Effect = JoinResponse | SyncResponse | StoreGroup
