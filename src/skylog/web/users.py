"""Users whose passwords the cluster checks, for HTTP servers. `skylog.client.cluster_users` asks the cluster."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from skylog.web.access import Refusal


class Visitor(NamedTuple):
    """Somebody whose credentials are right. `name` is empty if they name no user."""

    name: str = ""
    may_change: bool = True


ANYONE: Final = Visitor()


class Users(Protocol):
    """Checks users and their rights. Only for an event loop."""

    async def visitor(self, user: str, password: str) -> Visitor | Refusal:
        """Return the visitor; a Refusal with 401 for a wrong login, 403 without the rights, 503 if it cannot tell."""
