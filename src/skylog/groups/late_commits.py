"""Recognizes commits that arrive late, on a connection that the client has given up.

A client that gets no response opens another connection, and commits there. If the network has only held back what the
first connection had sent, that arrives afterwards: an older commit, which would move the committed offset back. Nothing
in it says that it is late. But clients commit on one connection at a time, so a commit is late if the same client has
committed on a newer connection before.

What the network has held back arrives at once. A client that still commits on the older connection seconds later uses
both, from a pool of connections: then its commits are accepted.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

HELD_BACK_S: Final = 5.0
MOST_CLIENTS: Final = 10_000


@dataclass(slots=True)
class _Connections:
    newest: int
    late_since_s: dict[int, float] = field(default_factory=dict)


class LateCommits:
    """The connections that each client has committed on. The clients that committed last are remembered."""

    def __init__(self, most_clients: int = MOST_CLIENTS) -> None:
        self._clients: dict[Hashable, _Connections] = {}
        self._most_clients = most_clients

    def is_late(self, client: Hashable, connection: int, now_s: float) -> bool:
        """Whether a commit is late. Newer connections have higher numbers."""
        known = self._clients.pop(client, None) or _Connections(connection)
        self._clients[client] = known  # the last one to be forgotten
        if len(self._clients) > self._most_clients:
            del self._clients[next(iter(self._clients))]
        if connection < known.newest:
            return now_s - known.late_since_s.setdefault(connection, now_s) < HELD_BACK_S
        if connection > known.newest:
            known.newest = connection
            known.late_since_s.clear()
        return False
