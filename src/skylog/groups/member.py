"""A member of a consumer group, as the coordinator sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Token = Any
"""Whatever the shell needs to find the request that waits for an answer."""


@dataclass(slots=True)
class Member:
    """One member. `join` and `sync` hold the requests of it that wait; while one does, the member counts as alive."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: list[tuple[str, bytes]]
    assignment: bytes = b""
    join: Token | None = None
    sync: Token | None = None
    has_synced: bool = False
    expires_at_ms: int = field(default=0)

    def metadata(self, protocol: str | None) -> bytes:
        """What the member said under `protocol`: for a consumer, the topics it subscribes to."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def supports(self) -> set[str]:
        return {name for name, _ in self.protocols}

    @property
    def is_waiting(self) -> bool:
        return self.join is not None or self.sync is not None

    def touch(self, now_ms: int) -> None:
        """It has been heard of: its session begins anew."""
        self.expires_at_ms = now_ms + self.session_timeout_ms
