"""The login of one connection (SASL), and its repetition (KIP-368).

| state | entered when | served |
|---|---|---|
| connected | the connection begins | ApiVersions, SaslHandshake |
| exchanging | SaslHandshake has named a mechanism | ApiVersions, SaslHandshake, SaslAuthenticate |
| authenticated | the mechanism has accepted the client | everything |
| repeating | SaslHandshake in the authenticated state | everything; the principal stays |
| refused | a token was wrong, also in a repetition | nothing: the connection is closed after a delay |

After version 0 of SaslHandshake the client's tokens are frames without a header, and so are the responses.

Until it is authenticated, a connection has LOGIN_SECONDS and may send small frames only. A session that expires is
closed, whether the client sends something or not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

from skylog.errors import ErrorCode, MalformedRequestError
from skylog.limited_logger import LimitedLogger
from skylog.net import PendingReply, Reply
from skylog.protocol.apis import ApiKey
from skylog.protocol.sasl_authenticate import SaslAuthenticateResponse
from skylog.protocol.sasl_handshake import SaslHandshakeResponse
from skylog.security.sasl import Exchange, Identity, LoginError

if TYPE_CHECKING:
    from skylog.broker.router import Router
    from skylog.broker.session import Session

logger = logging.getLogger(__name__)
limited_logger = LimitedLogger(logger)  # clients can cause all of these lines

LOGIN_SECONDS: Final = 30.0
_BEFORE_LOGIN: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginRules:
    """How clients of a listener log in. `begin` starts the exchange of a mechanism that is enabled."""

    mechanisms: tuple[str, ...]
    begin: Callable[[str], Exchange]
    max_reauth_ms: int
    failure_delay_ms: int
    max_request_bytes: int


class Login:
    """Handles the frames of a session until it is authenticated. Lives on the event loop's thread."""

    def __init__(self, session: Session, router: Router, rules: LoginRules) -> None:
        self._session = session
        self._router = router
        self._rules = rules
        self._loop = asyncio.get_running_loop()
        self._exchange: Exchange | None = None
        self._mechanism = ""
        self._is_authenticated = self._is_refused = False
        self._has_raw_tokens = self._has_spoken = False
        self._timer = self._loop.call_later(LOGIN_SECONDS, self._expire, "it has not logged in")

    def handle(self, frame: memoryview) -> Reply | PendingReply | None:
        """Handle a frame before the login. Raises MalformedRequestError for anything that needs one."""
        self._has_spoken = True
        if self._has_raw_tokens:
            return self._handle_raw(bytes(frame))
        if not self._is_authenticated and int.from_bytes(frame[:2], "big") not in _BEFORE_LOGIN:
            raise MalformedRequestError("a request before the login")
        return self._router.route(self._session, frame)

    def handshake(self, mechanism: str, *, raw_tokens: bool = False) -> SaslHandshakeResponse:
        """Begin an exchange. A repeated login uses the mechanism of the first one, and no raw tokens."""
        mechanisms = list(self._rules.mechanisms)
        is_other = mechanism != self._mechanism or raw_tokens
        if self._is_refused or (self._is_authenticated and is_other):
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=mechanisms)
        if mechanism not in mechanisms:
            return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=mechanisms)
        self._mechanism = mechanism
        self._exchange = self._rules.begin(mechanism)
        self._has_raw_tokens = raw_tokens
        return SaslHandshakeResponse(mechanisms=mechanisms)

    def authenticate(self, token: bytes) -> SaslAuthenticateResponse | Awaitable[SaslAuthenticateResponse]:
        exchange = self._exchange
        if exchange is None or self._is_refused:
            return self._refuse(ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake must come first")
        try:
            answer = exchange.respond(token)
            if exchange.identity is None:
                return SaslAuthenticateResponse(auth_bytes=answer)
            lifetime_ms = self._accept(exchange.identity)
        except LoginError as error:
            return self._refuse(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error))
        return SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=lifetime_ms)

    def _handle_raw(self, token: bytes) -> Reply | PendingReply:
        """Handle a token without a header. There is no response to a wrong one."""
        exchange = self._exchange
        assert exchange is not None
        try:
            answer = exchange.respond(token)
            if exchange.identity is not None:
                self._accept(exchange.identity)
                self._has_raw_tokens = False
        except LoginError as error:
            self._shut_out(str(error))
            self._loop.call_later(self._rules.failure_delay_ms / 1000, self._session.connection.close)
            return PendingReply(self._session.connection)
        return [len(answer).to_bytes(4, "big") + answer]

    def _accept(self, identity: Identity) -> int:
        """Let the client in, and return how long its session may last; 0 for ever. Raises LoginError."""
        principal, session = f"User:{identity.user}", self._session
        if self._is_authenticated and principal != session.principal:
            raise LoginError("Authentication failed: a repeated login cannot change the user")
        limits_ms = [self._rules.max_reauth_ms] if self._rules.max_reauth_ms > 0 else []
        if identity.lifetime_s is not None:
            limits_ms.append(int(identity.lifetime_s * 1000))
        lifetime_ms = min(limits_ms, default=0)
        self._timer.cancel()
        if lifetime_ms:
            self._timer = self._loop.call_later(lifetime_ms / 1000, self._expire, "its session has expired")
        self._exchange = None
        if not self._is_authenticated:
            self._is_authenticated = True
            session.principal = principal
            session.handle = partial(self._router.route, session)
            session.connection.allow_frames(self._rules.max_request_bytes)
        return lifetime_ms

    def _refuse(self, code: ErrorCode, reason: str) -> Awaitable[SaslAuthenticateResponse]:
        """Respond after a delay, which makes guessing slow, and close the connection."""
        self._shut_out(reason)
        return self._respond_and_close(SaslAuthenticateResponse(error_code=code, error_message=reason))

    async def _respond_and_close(self, response: SaslAuthenticateResponse) -> SaslAuthenticateResponse:
        await asyncio.sleep(self._rules.failure_delay_ms / 1000)
        self._loop.call_soon(self._session.connection.close)  # runs after the response is sent
        return response

    def _shut_out(self, reason: str) -> None:
        """Serve nothing more, not even requests that were received with the wrong token."""
        self._is_refused, self._exchange = True, None
        session = self._session
        session.handle, session.lanes, session.shortcut = _refuse_frame, None, None
        mechanism = self._mechanism or "no mechanism"
        limited_logger.warning("a login of %s failed (%s): %s", session.connection.peer, mechanism, reason)

    def _expire(self, reason: str) -> None:
        """Close the connection. One that has sent nothing may be another broker that watches this process."""
        log = limited_logger.warning if self._has_spoken else logger.debug
        log("closing the connection of %s: %s", self._session.connection.peer, reason)
        self._session.connection.close()

    def close(self) -> None:
        self._timer.cancel()


def _refuse_frame(frame: memoryview) -> NoReturn:
    raise MalformedRequestError("a request after a failed login")
