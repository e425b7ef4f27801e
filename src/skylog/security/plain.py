"""PLAIN (RFC 4616): user and password in one token. Use it with TLS only."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from skylog.security.sasl import FAILED, Identity, LoginError


class PlainExchange:
    """One login. `passwords` are by user; with an empty one nobody logs in."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self.identity: Identity | None = None
        self._passwords = passwords

    def respond(self, token: bytes) -> bytes:
        try:
            authzid, user, password = token.decode().split("\0")
        except ValueError:  # also if it is not UTF-8
            raise LoginError(FAILED) from None
        expected = self._passwords.get(user, "")
        is_right = hmac.compare_digest(_digest(password), _digest(expected))
        if not expected or not is_right or not user or authzid not in ("", user):
            raise LoginError(FAILED)
        self.identity = Identity(user)
        return b""


def _digest(password: str) -> bytes:
    """Return as many bytes for every password: the time of the comparison does not depend on its length."""
    return hashlib.sha256(password.encode()).digest()
