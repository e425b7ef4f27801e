"""A login as an exchange of tokens. Each mechanism is one kind of exchange."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from skylog.errors import SkylogError


class LoginError(SkylogError):
    """The login has failed. The message may be sent to the client: it does not say which part was wrong."""


class Identity(NamedTuple):
    """Who has logged in, and for how many seconds the proof is valid; None for ever."""

    user: str
    lifetime_s: float | None = None


class Exchange(Protocol):
    """The server's side of one login. `identity` is None until it has succeeded."""

    identity: Identity | None

    def respond(self, token: bytes) -> bytes:
        """Return the response to the client's next token. Raises LoginError."""


FAILED = "Authentication failed: invalid credentials"
