"""A connection to another broker: sends requests, receives the responses in order.

    peer = await Peer.connect("10.0.0.2", 9092, client_id="broker-1")
    response = await peer.ask(MetadataRequest(...))

Requests may be pipelined: a broker answers the requests of one connection in order. A connection that fails or times
out is closed, and all waiting requests get a PeerError. The caller reconnects. A login that expires is repeated in time
(KIP-368).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, cast

from skylog.errors import ErrorCode, MalformedRequestError, SkylogError
from skylog.net.frame_memory import FrameMemory
from skylog.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from skylog.protocol.apis import API_SPECS
from skylog.protocol.frames import encoded_request_frame, request_frame
from skylog.protocol.headers import RequestHeader, read_response_header
from skylog.protocol.sasl_authenticate import SaslAuthenticateRequest
from skylog.protocol.sasl_handshake import SaslHandshakeRequest
from skylog.protocol.schema import Message

if TYPE_CHECKING:
    import ssl

DEFAULT_TIMEOUT_S: Final = 30.0
MAX_FRAME_BYTES: Final = 256 * 1024 * 1024
RENEWED_AFTER: Final = 0.8  # of the lifetime of a session
_FIRST_API_VERSIONS: Final = 3


class PeerError(SkylogError):
    """The broker cannot be reached, or the connection to it is closed."""


class LoginRefusedError(PeerError):
    """The broker refuses the login: the user or the password is wrong."""


class PeerLogin(Protocol):
    """The client's side of a SASL login."""

    @property
    def mechanism(self) -> str: ...

    def respond(self, challenge: bytes | None) -> bytes | None:
        """Return the next token, None when the login is complete. The first call gets None. Raises SkylogError."""


@dataclass(frozen=True, slots=True)
class PeerSecurity:
    """How to connect to a listener with TLS or logins.

    `context` returns the TLS context for a new connection, None without TLS. `login` makes one login.
    """

    context: Callable[[], ssl.SSLContext] | None = None
    login: Callable[[], PeerLogin] | None = field(default=None, repr=False)


class EncodedAnswer:
    """The response to an encoded request, as its frame and the position of its body. `on_done` is called at once.

    It does the work of a future in a fraction of its time.
    """

    __slots__ = ("_error", "_frame", "_on_done", "_position", "is_done")

    def __init__(self, on_done: Callable[[], None]) -> None:
        self._on_done = on_done
        self._frame = memoryview(b"")
        self._position = 0
        self._error: PeerError | None = None
        self.is_done = False

    def result(self) -> tuple[memoryview, int]:
        """Return the response, which is done. Raises PeerError if there is none."""
        if self._error is not None:
            raise self._error
        return self._frame, self._position

    def resolve(self, frame: memoryview, position: int) -> None:
        self._frame, self._position, self.is_done = frame, position, True
        self._on_done()

    def fail(self, error: PeerError) -> None:
        self._error, self.is_done = error, True
        self._on_done()


class _Waiting:
    """A sent request that waits for its response."""

    __slots__ = ("answer", "correlation_id", "spec", "version")

    def __init__(
        self, correlation_id: int, api_key: int, version: int, answer: asyncio.Future[Any] | EncodedAnswer
    ) -> None:
        self.correlation_id = correlation_id
        self.spec = API_SPECS[api_key]
        self.version = version
        self.answer = answer

    def fail(self, error: PeerError) -> None:
        if isinstance(self.answer, EncodedAnswer):
            self.answer.fail(error)
        elif not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()  # marks it as retrieved: no one may be waiting for it


class Peer(asyncio.BufferedProtocol):
    """One connection. Use it only on the event loop. Create it with `connect`."""

    def __init__(self, address: str, client_id: str, timeout_s: float) -> None:
        self.address = address
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._transport: asyncio.Transport | None = None
        self._numbers = count()
        self._waiting: deque[_Waiting] = deque()
        self._versions: dict[int, tuple[int, int]] = {}
        self._failure: PeerError | None = None
        self._memory = FrameMemory(MAX_FRAME_BYTES)
        self._make_login: Callable[[], PeerLogin] | None = None
        self._renewal: asyncio.TimerHandle | asyncio.Task[None] | None = None

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        security: PeerSecurity | None = None,
    ) -> Self:
        """Connect, request the API versions of the broker, and log in if necessary. Raises PeerError."""
        peer = cls(f"{host}:{port}", client_id, timeout_s)
        security = security or PeerSecurity()
        peer._make_login = security.login
        try:
            async with asyncio.timeout(timeout_s):
                context = None if security.context is None else security.context()
                await asyncio.get_running_loop().create_connection(lambda: peer, host, port, ssl=context)
                await peer._load_versions()
                if security.login is not None:
                    await peer._log_in(security.login())
        except (OSError, TimeoutError) as error:
            peer.close()
            raise PeerError(f"cannot connect to the broker at {peer.address}: {error or 'timed out'}") from error
        except BaseException:
            peer.close()
            raise
        return peer

    async def _load_versions(self) -> None:
        request = ApiVersionsRequest(client_software_name="skylog", client_software_version="0")
        answer = cast(ApiVersionsResponse, await self.ask(request, _FIRST_API_VERSIONS))
        self._versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}

    async def _log_in(self, login: PeerLogin) -> None:
        """Log in, and again before the session expires. Raises PeerError."""
        answer = await self.ask(SaslHandshakeRequest(mechanism=login.mechanism))
        if answer.error_code:
            offered = ", ".join(answer.mechanisms)
            raise PeerError(f"the broker at {self.address} does not offer {login.mechanism}, but {offered}")
        token, lifetime_ms = self._respond(login, None), 0
        while token is not None:
            answered = await self.ask(SaslAuthenticateRequest(auth_bytes=token))
            if answered.error_code:
                message = f"the broker at {self.address} refuses the login: {answered.error_message}"
                is_wrong = answered.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
                raise LoginRefusedError(message) if is_wrong else PeerError(message)
            token, lifetime_ms = self._respond(login, bytes(answered.auth_bytes)), answered.session_lifetime_ms
        if lifetime_ms > 0:
            delay_s = lifetime_ms / 1000 * RENEWED_AFTER
            self._renewal = asyncio.get_running_loop().call_later(delay_s, self._renew)

    def _respond(self, login: PeerLogin, challenge: bytes | None) -> bytes | None:
        try:
            return login.respond(challenge)
        except SkylogError as error:
            raise PeerError(f"cannot log in to the broker at {self.address}: {error}") from error

    def _renew(self) -> None:
        self._renewal = asyncio.ensure_future(self._log_in_again())

    async def _log_in_again(self) -> None:
        assert self._make_login is not None
        try:
            await self._log_in(self._make_login())
        except PeerError as error:
            self._fail(error)

    @property
    def is_open(self) -> bool:
        return self._failure is None

    def version_of(self, api_key: int) -> int:
        """Return the newest version of an API that both sides support. Raises PeerError if there is none."""
        ours = API_SPECS[api_key].versions
        low, high = self._versions.get(api_key, (0, -1))
        version = min(high, ours.high)
        if version < max(low, ours.low):
            raise PeerError(f"the broker at {self.address} does not support versions {ours} of API {api_key}")
        return version

    def supports(self, api_key: int) -> bool:
        """Return whether there is a version of an API that both sides support."""
        ours = API_SPECS[api_key].versions
        low, high = self._versions.get(api_key, (0, -1))
        return min(high, ours.high) >= max(low, ours.low)

    # -- requests

    async def ask(self, request: Message, version: int | None = None) -> Any:
        """Send a request and return its response, by default in the newest common version. Raises PeerError."""
        waiting = self.send(request, version)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(waiting)
        except TimeoutError:
            error = PeerError(f"the broker at {self.address} did not respond within {self._timeout_s:g} s")
            self._fail(error)
            raise error from None

    def send(self, request: Message, version: int | None = None) -> asyncio.Future[Message]:
        """Send a request now, after the waiting ones. Return a future of its response."""
        if version is None:
            version = self.version_of(request.api_key)
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(next(self._numbers), request.api_key, version, answer)
        header = RequestHeader(request.api_key, version, waiting.correlation_id, self._client_id)
        self._send(waiting, request_frame(header, request))
        return answer

    def send_encoded(self, api_key: int, version: int, body: bytes, on_done: Callable[[], None]) -> EncodedAnswer:
        """Send an encoded request. For the data path, which has its own codecs. `on_done` must not raise."""
        answer = EncodedAnswer(on_done)
        waiting = _Waiting(next(self._numbers), api_key, version, answer)
        header = RequestHeader(api_key, version, waiting.correlation_id, self._client_id)
        self._send(waiting, encoded_request_frame(header, body))
        return answer

    async def ask_encoded(self, api_key: int, version: int, body: bytes) -> tuple[memoryview, int]:
        """Send an encoded request, and wait for the response's frame and the position of its body. Raises PeerError."""
        done = asyncio.Event()
        answer = self.send_encoded(api_key, version, body, done.set)
        await done.wait()
        return answer.result()

    def _send(self, waiting: _Waiting, frame: bytes | bytearray) -> None:
        if self._failure is not None:
            raise self._failure
        assert self._transport is not None
        self._waiting.append(waiting)
        self._transport.write(frame)

    def close(self) -> None:
        self._fail(PeerError(f"the connection to {self.address} was closed"))

    def _fail(self, error: PeerError) -> None:
        if self._failure is None:
            self._failure = error
        if isinstance(self._renewal, asyncio.TimerHandle):
            self._renewal.cancel()  # a login that is under way fails with the other requests
        if self._transport is not None:
            self._transport.abort()
        while self._waiting:
            self._waiting.popleft().fail(error)

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(PeerError(f"the broker at {self.address} closed the connection" + (f": {error}" if error else "")))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._memory.room

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._memory.received(nbytes):
                self._take(frame)
        except MalformedRequestError as error:
            self._fail(PeerError(f"the broker at {self.address} sent an invalid response: {error}"))

    def recycle(self, frame: memoryview) -> None:
        """Use the memory of a response for a later one. Nothing may refer to it any more."""
        self._memory.recycle(frame)

    def _take(self, frame: memoryview) -> None:
        """Decode a received response and complete its future."""
        if not self._waiting:
            raise MalformedRequestError("a response to no request")
        waiting = self._waiting.popleft()
        header_version = waiting.spec.response_header_version(waiting.version)
        correlation_id, position = read_response_header(frame, header_version)
        if correlation_id != waiting.correlation_id:
            self._waiting.appendleft(waiting)
            raise MalformedRequestError(f"correlation id {correlation_id}, expected {waiting.correlation_id}")
        answer = waiting.answer
        if isinstance(answer, EncodedAnswer):
            answer.resolve(frame, position)
            return
        try:
            response, _ = waiting.spec.response.read(frame, waiting.version, position)
        except MalformedRequestError:
            self._waiting.appendleft(waiting)
            raise
        if not answer.done():
            answer.set_result(response)
