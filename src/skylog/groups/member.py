"""A member of a consumer group, as the coordinator sees it, and how it asks to be one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Token = Any
"""Whatever the shell needs to find the request that waits for an answer."""

Protocols = tuple[tuple[str, bytes], ...]
"""The assignors that a member can use, the one it likes best first, with what it tells each of them."""


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
    protocols: Protocols
    needs_known_id: bool
    knows_skip_assignment: bool = False


@dataclass(slots=True)
class Member:
    """One member.

    `join` and `sync` hold the requests of it that wait; while one does, the member counts as alive. Not so a new
    member's first join: nobody has shown yet that it can come back, so it has until `expires_at_ms` like any other.
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
        """What the member said under `protocol`: for a consumer, the topics it subscribes to."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def supports(self) -> set[str]:
        return {name for name, _ in self.protocols}

    @property
    def can_expire(self) -> bool:
        """Whether its session runs: not while it waits for an answer of ours."""
        return self.is_new or (self.join is None and self.sync is None)

    def touch(self, now_ms: int) -> None:
        """It has been heard of: its session begins anew."""
        self.expires_at_ms = now_ms + self.session_timeout_ms
