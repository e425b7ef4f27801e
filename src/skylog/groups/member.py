"""A member of a consumer group, and its request to join."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Token = Any
"""Identifies a waiting request to the shell."""

Protocols = tuple[tuple[str, bytes], ...]
"""The assignors that a member supports in order of preference, each with the member's metadata for it."""


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A request to join. `member_id` is empty at first. `needs_known_id` is set from version 4 on (KIP-394)."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_known_id: bool
    knows_skip_assignment: bool = False


@dataclass(slots=True)
class Member:
    """A member.

    `join` and `sync` are its waiting requests. While one waits, the session does not expire. The first join of a new
    member is an exception: the client may have given up, so the member expires at `expires_at_ms` although it waits.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join: Token | None = None
    sync: Token | None = None
    has_synced: bool = False
    is_new: bool = False
    expires_at_ms: int = 0

    @classmethod
    def from_request(cls, member_id: str, request: JoinRequest) -> Member:
        return cls(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
        )

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for `protocol`: for a consumer, its subscription."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def supports(self) -> set[str]:
        return {name for name, _ in self.protocols}

    @property
    def can_expire(self) -> bool:
        """Whether the session can expire: not while the member waits for a response."""
        return self.is_new or (self.join is None and self.sync is None)

    def touch(self, now_ms: int) -> None:
        """Restart the session timeout."""
        self.expires_at_ms = now_ms + self.session_timeout_ms
