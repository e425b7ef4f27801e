"""Recognizes commits that arrive late, on a connection that the client has given up.

A client that gets no response opens another connection, and commits there. If the network has only held back what the
first connection had sent, that arrives afterwards: an older commit, which would move the committed offset back. Nothing
in it says that it is late. But a client commits on one connection at a time, so a commit is late if the same client has
committed on a newer connection before.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

MOST_CLIENTS: Final = 10_000


class LateCommits:
    """The newest connection that each client has committed on. The clients that committed last are remembered."""

    def __init__(self, most_clients: int = MOST_CLIENTS) -> None:
        self._newest: dict[Hashable, int] = {}
        self._most_clients = most_clients

    def is_late(self, client: Hashable, connection: int) -> bool:
        """Whether a commit is late. If it is not, its connection is noted. Newer connections have higher numbers."""
        newest = self._newest.pop(client, connection)
        self._newest[client] = max(newest, connection)
        if len(self._newest) > self._most_clients:
            del self._newest[next(iter(self._newest))]
        return connection < newest
