"""Checks a visitor's credentials: a bearer token, a user and password, or the session cookie of the login page.

The user is the one of the settings, or one of the cluster: `Users` then checks the password, and the session of a
cookie refers to both, so that a user who is removed or loses a right is refused soon.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from starlette.requests import HTTPConnection

from skylog.web.access import Access, Refusal
from skylog.web.users import ANYONE, Users, Visitor

COOKIE: Final = "skylog_session"
SESSION_S: Final = 12 * 3600
MAX_SESSIONS: Final = 1_000
REJECT_DELAY_S: Final = 0.5
MAX_PARALLEL_REJECTS: Final = 4
MISSING: Final = Refusal(401, "credentials are required: a bearer token, or a user and a password")


class _Login(NamedTuple):
    """The user of a session, until when it lasts."""

    user: str
    password: str
    until_s: float


class Credentials:
    """Checks credentials in constant time.

    Without `users`, the cookie is signed with the credentials, so changing them ends all sessions.
    """

    def __init__(self, access: Access, users: Users | None = None, now: Callable[[], float] = time.time) -> None:
        self._access = access
        self._users = users
        self._now = now
        self._rejects = asyncio.Semaphore(MAX_PARALLEL_REJECTS)
        self._logins: dict[str, _Login] = {}  # the oldest first
        texts = (access.token or "", access.user or "", access.password or "")
        self._key = hashlib.sha256(b"".join(hashlib.sha256(text.encode()).digest() for text in texts)).digest()

    async def check(self, request: HTTPConnection) -> Visitor | Refusal:
        """Return the visitor who sends a request, or why it is refused. Delays a wrong password or token."""
        if not self._access.requires_credentials:
            return ANYONE
        scheme, _, value = request.headers.get("authorization", "").partition(" ")
        match scheme.lower():
            case "bearer":
                found = ANYONE if self.is_token(value.strip()) else MISSING
            case "basic":
                found = await self._check_user(*_decode_basic(value))
            case _:
                return await self._check_session(request.cookies.get(COOKIE, ""))
        if isinstance(found, Refusal) and found.status == 401 and value:
            await self.delay_reject()
        return found

    def is_token(self, token: str) -> bool:
        return bool(self._access.token) and _equal(token, self._access.token or "")

    def is_user(self, user: str, password: str) -> bool:
        is_known = _equal(user, self._access.user or "") & _equal(password, self._access.password or "")
        return bool(self._access.user) and is_known

    async def delay_reject(self) -> None:
        """Wait before rejecting wrong credentials. Limits the rate of guessing, in parallel too."""
        async with self._rejects:
            await asyncio.sleep(REJECT_DELAY_S)

    async def log_in(self, user: str, password: str) -> str | Refusal:
        """Return the value of a session cookie, valid for SESSION_S, or why the login is refused."""
        found = await self._check_user(user, password)
        if isinstance(found, Refusal):
            return found
        if self._users is None:
            return self.session()
        while len(self._logins) >= MAX_SESSIONS:
            del self._logins[next(iter(self._logins))]
        cookie = secrets.token_urlsafe(32)
        self._logins[cookie] = _Login(user, password, self._now() + SESSION_S)
        return cookie

    def log_out(self, request: HTTPConnection) -> None:
        self._logins.pop(request.cookies.get(COOKIE, ""), None)

    def session(self) -> str:
        """Return the value of a session cookie for the credentials of the settings."""
        until = str(int(self._now()) + SESSION_S)
        return f"{until}.{self._sign(until)}"

    async def _check_user(self, user: str, password: str) -> Visitor | Refusal:
        if self._users is not None:
            return await self._users.visitor(user, password)
        return ANYONE if self.is_user(user, password) else MISSING

    async def _check_session(self, cookie: str) -> Visitor | Refusal:
        if self._users is None:
            return ANYONE if self._is_session(cookie) else MISSING
        login = self._logins.get(cookie)
        if login is None:
            return MISSING
        found: Visitor | Refusal = MISSING
        if login.until_s > self._now():
            found = await self._users.visitor(login.user, login.password)
        if isinstance(found, Refusal) and found.status == 401:
            self._logins.pop(cookie, None)
        return found

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
