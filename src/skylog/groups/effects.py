"""What a group asks its shell to do, in order: store something, answer a request."""

from __future__ import annotations

from dataclasses import dataclass

from skylog.errors import ErrorCode
from skylog.groups.member import Token


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """The answer to JoinGroup. `members` is for the leader alone: id, instance id and metadata of everyone."""

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
class SyncAnswer:
    """The answer to SyncGroup: what the leader assigned to this member."""

    token: Token
    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class StoreGroup:
    """Write the group's present state to the log before anything that follows is answered.

    A shell that has to wait for the disk says so with `Group.storing` and `Group.stored`. Where it fails,
    `Group.storing_failed` must be called, and the answers that follow must not be given.
    """


Effect = JoinAnswer | SyncAnswer | StoreGroup
