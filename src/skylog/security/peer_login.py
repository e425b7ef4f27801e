"""Logins of our own connections, between brokers and from tools: the client's side of PLAIN and SCRAM."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from skylog.security.scram import MECHANISMS, ScramLogin

PLAIN: Final = "PLAIN"
WITH_PASSWORDS: Final = (PLAIN, *MECHANISMS)
"""The mechanisms that need a user and a password."""


class PlainPeerLogin:
    """A login with PLAIN."""

    mechanism = PLAIN

    def __init__(self, user: str, password: str) -> None:
        self._token = f"\0{user}\0{password}".encode()

    def respond(self, challenge: bytes | None) -> bytes | None:
        return self._token if challenge is None else None


class ScramPeerLogin:
    """A login with SCRAM. The broker must prove that it knows the password, too."""

    def __init__(self, mechanism: str, user: str, password: str) -> None:
        self.mechanism = mechanism
        self._login = ScramLogin(MECHANISMS[mechanism], user, password)
        self._is_proven = False

    def respond(self, challenge: bytes | None) -> bytes | None:
        if challenge is None:
            return self._login.first()
        if self._is_proven:
            self._login.verify(challenge)
            return None
        self._is_proven = True
        return self._login.final(challenge)


def password_login(mechanism: str, user: str, password: str) -> Callable[[], PlainPeerLogin | ScramPeerLogin]:
    """Return what makes a login with one of WITH_PASSWORDS."""
    if mechanism in MECHANISMS:
        return partial(ScramPeerLogin, mechanism, user, password)
    return partial(PlainPeerLogin, user, password)
