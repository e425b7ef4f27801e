"""Checks a visitor's credentials: a bearer token, a user and password, or the session cookie of the login page."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Callable
from typing import Final

from starlette.requests import HTTPConnection

from skylog.web.access import Access

COOKIE: Final = "skylog_session"
SESSION_S: Final = 12 * 3600
REJECT_DELAY_S: Final = 0.5
MAX_PARALLEL_REJECTS: Final = 4


class Credentials:
    """Checks credentials in constant time. The cookie is signed with them, so changing them ends all sessions."""

    def __init__(self, access: Access, now: Callable[[], float] = time.time) -> None:
        self._access = access
        self._now = now
        self._rejects = asyncio.Semaphore(MAX_PARALLEL_REJECTS)
        secrets = (access.token or "", access.user or "", access.password or "")
        self._key = hashlib.sha256(b"".join(hashlib.sha256(text.encode()).digest() for text in secrets)).digest()

    def accept(self, request: HTTPConnection) -> bool:
        if not self._access.requires_credentials:
            return True
        scheme, _, value = request.headers.get("authorization", "").partition(" ")
        match scheme.lower():
            case "bearer":
                return self.is_token(value.strip())
            case "basic":
                return self.is_user(*_decode_basic(value))
            case _:
                return self._is_session(request.cookies.get(COOKIE, ""))

    def is_token(self, token: str) -> bool:
        return bool(self._access.token) and _equal(token, self._access.token or "")

    def is_user(self, user: str, password: str) -> bool:
        is_known = _equal(user, self._access.user or "") & _equal(password, self._access.password or "")
        return bool(self._access.user) and is_known

    async def delay_reject(self) -> None:
        """Wait before rejecting wrong credentials. Limits the rate of guessing, in parallel too."""
        async with self._rejects:
            await asyncio.sleep(REJECT_DELAY_S)

    def session(self) -> str:
        """Return the value of a session cookie. It is valid for SESSION_S."""
        until = str(int(self._now()) + SESSION_S)
        return f"{until}.{self._sign(until)}"

    def _is_session(self, cookie: str) -> bool:
        until, _, signature = cookie.partition(".")
        return _equal(signature, self._sign(until)) and until.isdecimal() and int(until) > self._now()

    def _sign(self, until: str) -> str:
        return hmac.new(self._key, until.encode(), "sha256").hexdigest()


def _equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


def _decode_basic(value: str) -> tuple[str, str]:
    try:
        user, _, password = base64.b64decode(value.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return user, password
