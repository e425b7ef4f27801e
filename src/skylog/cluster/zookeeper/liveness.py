"""Decides when a session needs a heartbeat, when its connection is dead, and when it has expired. Pure.

The server deletes a session's ephemeral entries when it has heard nothing of the session for the session timeout. The
client must consider the session expired no later than that. The server's time begins when a request arrives, which
is after the client sent it. So the client counts from the moment at which it sent the latest request that was answered.

kazoo alone does not guarantee that. It detects a dead connection only while it has nothing to send, and does not limit
the time without a connection.
"""

from __future__ import annotations

from enum import Enum, auto
from math import inf
from typing import Final

_HEARTBEATS: Final = 6  # per session timeout
_CHECKS: Final = 12


class Step(Enum):
    NOTHING = auto()
    HEARTBEAT = auto()
    DROP = auto()
    """The connection is dead: close it, so that kazoo tries the next server."""
    EXPIRE = auto()


class Liveness:
    """The state of one session with `servers` servers. All times are seconds of one monotonic clock."""

    def __init__(self, timeout_s: float, servers: int) -> None:
        self._servers = servers
        self._last_contact: float | None = None
        self._connected_at: float | None = None
        self.timeout_s = timeout_s

    @property
    def connect_timeout_s(self) -> float:
        """The time for one connection attempt. All servers can be tried before the session expires."""
        return self.timeout_s / 3 / self._servers

    @property
    def deadline(self) -> float:
        """When the session expires. Never before the first connection."""
        return inf if self._last_contact is None else self._last_contact + self.timeout_s

    def connected(self, began_at: float, now: float) -> None:
        """A connection attempt, begun at `began_at`, has succeeded."""
        self._connected_at = now
        self.answered(began_at)

    def disconnected(self) -> None:
        self._connected_at = None

    def answered(self, sent_at: float) -> None:
        """The server has answered a request that was sent at `sent_at`."""
        self._last_contact = max(sent_at, self._last_contact or sent_at)

    def next_step(self, now: float, attempt_began_at: float, unanswered_since: float | None) -> Step:
        """`unanswered_since`: when the oldest request without an answer was sent."""
        if now >= self.deadline:
            return Step.EXPIRE
        if self._connected_at is None or self._last_contact is None:
            # One half of the time is for the TCP connection, the other one for the server's answer.
            return Step.DROP if now - attempt_began_at > 2 * self.connect_timeout_s else Step.NOTHING
        if unanswered_since is not None:
            waiting_since = max(unanswered_since, self._connected_at)
            return Step.DROP if now - waiting_since > self.timeout_s / 3 else Step.NOTHING
        is_due = now - self._last_contact >= self.timeout_s / _HEARTBEATS
        return Step.HEARTBEAT if is_due else Step.NOTHING

    def next_check(self, now: float) -> float:
        """When `next_step` must be called next."""
        return min(now + self.timeout_s / _CHECKS, max(self.deadline, now))
