"""Routes frames to handlers: reads the request header, checks rights, calls the handler, frames the response.

A request that cannot be decoded closes its connection, as in Kafka. So does an API or version that is not served,
except ApiVersions, which is answered in every version. An exception that escapes a handler is logged and closes that
one connection.

A large request is decoded, and its response encoded, in a thread: both can take longer than other clients should wait.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from skylog.broker.api import Api, Context
from skylog.broker.handlers.api_versions import unsupported_version
from skylog.broker.held_frame import HeldFrame
from skylog.broker.metrics.requests import RequestTimes
from skylog.broker.quotas.active import ActiveQuotas
from skylog.broker.quotas.usage import MeteredWork, Usage
from skylog.broker.security.access import Rights, explain
from skylog.broker.session import PLAINTEXT, Session
from skylog.errors import ErrorCode, MalformedRequestError
from skylog.limited_logger import LimitedLogger
from skylog.net import Connection, PendingReply, Reply
from skylog.protocol.apis import API_SPECS, ApiKey
from skylog.protocol.frames import response_frame
from skylog.protocol.headers import read_request_header
from skylog.protocol.primitives import read_uvarint, skip_tagged_fields
from skylog.protocol.schema import Message

if TYPE_CHECKING:
    from skylog.broker.broker import Broker

limited_logger = LimitedLogger(logging.getLogger(__name__))  # clients can cause all of these lines

_HEADER: Final = struct.Struct(">iih")  # API and version, correlation id, length of the client id


Gate = Callable[[Session, Api], None]
"""Called with every request before it is decoded. It raises MalformedRequestError to refuse the request, which closes
the connection."""


class Route(NamedTuple):
    """What the router needs for one version of an API."""

    api: Api
    is_flexible: bool
    times: RequestTimes


class Router:
    """Opens the session of each connection and handles its frames.

    With a `gate`, every request passes it. Requests in a fast lane would not, so there are none then.
    """

    def __init__(self, broker: Broker, apis: Iterable[Api], gate: Gate | None = None) -> None:
        self._broker = broker
        self._gate = gate
        self._quotas: ActiveQuotas | None = None
        self._requests = broker.requests
        self._apis = {int(api.key): api for api in apis}
        self._routes = {
            api.key << 16 | version: Route(
                api, API_SPECS[api.key].is_flexible(version), self._requests[api.key, version]
            )
            for api in self._apis.values()
            for version in range(api.low, api.high + 1)
        }
        self._tasks: set[asyncio.Task[None]] = set()

    def open_session(self, connection: Connection, listener: str = PLAINTEXT) -> Session:
        return Session(connection, self, listener)

    def rights_of(self, session: Session) -> Rights | None:
        """Return the rights of a new session, None without an authorizer."""
        access = self._broker.access
        return Rights(access.authorizer, session) if access is not None else None

    @property
    def has_fast_lanes(self) -> bool:
        return self._gate is None

    def route(self, session: Session, frame: memoryview) -> Reply | PendingReply | None:
        """Handle a frame. Raises MalformedRequestError to have the connection closed."""
        try:
            if self._quotas is not None:
                return self._route_metered(session, frame, self._quotas)
            return self._route(session, frame)
        except MalformedRequestError:
            raise
        except Exception as error:
            peer = session.connection.peer
            limited_logger.error("a request of %s failed (API and version %s)", peer, frame[:4].hex(), exc_info=error)
            self._note_failure(int.from_bytes(frame[:2], "big"))
            session.connection.close()
            return None

    def enforce(self, quotas: ActiveQuotas | None) -> None:
        """Enforce these quotas from now on, or none."""
        self._quotas = quotas

    @property
    def quotas(self) -> ActiveQuotas | None:
        """The quotas that are enforced, None if there are none."""
        return self._quotas

    def _route_metered(self, session: Session, frame: memoryview, quotas: ActiveQuotas) -> Reply | PendingReply | None:
        """Handle a frame, and hold the connection behind the reply for as long as the quotas of its client say."""
        usage = Usage(quotas, session)
        reply = self._route(session, frame, usage)
        usage.pause()
        if usage.wait_s:
            if reply is not None:
                session.connection.enqueue(reply)
            quotas.hold(session.connection, usage.wait_s)
            return None
        if isinstance(reply, PendingReply):
            reply.on_resolve = partial(_hold_behind, reply.on_resolve, quotas, session, usage)
        return reply

    def _note_failure(self, api_key: int) -> None:
        self._requests.errors[api_key, ErrorCode.UNKNOWN_SERVER_ERROR.name] += 1

    def _route(self, session: Session, frame: memoryview, usage: Usage | None = None) -> Reply | PendingReply | None:
        try:
            api_and_version, correlation_id, client_id_length = _HEADER.unpack_from(frame)
        except struct.error:
            raise MalformedRequestError("the request ends inside its header") from None
        route = self._routes.get(api_and_version)
        if route is None:
            return self._refuse(frame)
        api, is_flexible, times = route
        if self._gate is not None:
            self._gate(session, api)
        at_once, tick = times.at_once, session.connection.last_activity
        began = perf_counter() if tick != at_once.timed_at else 0.0
        position = 10 + client_id_length if client_id_length >= 0 else 10
        if client_id_length < -1 or position > len(frame):
            raise MalformedRequestError(f"a client id of {client_id_length} bytes leaves the request")
        client_id = str(frame[10:position], "utf-8", "replace") if client_id_length >= 0 else None
        session.client_id = client_id
        if is_flexible and position < len(frame) and not frame[position]:  # no tagged fields, as in most requests
            position += 1
        elif is_flexible:
            tag_count, position = read_uvarint(frame, position)
            if tag_count:
                position = skip_tagged_fields(frame, position, tag_count)
        context = Context(self._broker, session, api_and_version & 0xFFFF, correlation_id, client_id, usage)
        if api.handle_frame is not None:
            reply = api.handle_frame(context, frame, position)
        else:
            reply = self._handle(api, context, frame, position)
        if isinstance(reply, list) or reply is None:
            if began:
                at_once.timed_at = tick
                at_once.record(perf_counter() - began)
            else:
                at_once.untimed += 1
            return reply
        pending = reply if isinstance(reply, PendingReply) else self._wait_for(api, context, reply)
        times.parked(began or perf_counter(), pending)
        return pending

    def _handle(self, api: Api, context: Context, frame: memoryview, position: int) -> Reply | Awaitable[Reply]:
        held = HeldFrame.of_large(context.connection, frame)
        if held is not None:
            return self._handle_large(api, context, held, position)
        request, _ = API_SPECS[api.key].request.read(frame, context.version, position)
        response = self._respond(api, context, request)
        if api.has_large_answers:
            return self._answer_aside(api, context, response)
        if isinstance(response, Message):
            return self._answer(api, context, response)
        return self._answer_later(api, context, response)

    def _respond(self, api: Api, context: Context, request: Message) -> Message | Awaitable[Message]:
        """Call the handler if the client has the rights that the request needs as a whole."""
        assert api.handle is not None
        rights = context.session.rights
        if rights is not None:
            refusal = rights.refusal(api.needs, request)
            if refusal is not None:
                make: Any = API_SPECS[api.key].response
                response = api.refuse(request, refusal.code) if api.refuse else make(error_code=refusal.code)
                if isinstance(response, Message):
                    explain(response, refusal)
                return response
        return api.handle(context, request)

    async def _handle_large(self, api: Api, context: Context, held: HeldFrame, position: int) -> Reply:
        decode = partial(API_SPECS[api.key].request.read, held.data, context.version, position)
        with held:
            request, _ = await asyncio.get_running_loop().run_in_executor(self._broker.codec, decode)
        return await self._answer_aside(api, context, self._respond(api, context, request))

    async def _answer_aside(self, api: Api, context: Context, response: Message | Awaitable[Message]) -> Reply:
        """Encode the response in a thread."""
        message = response if isinstance(response, Message) else await response
        self._note_error(api, message)
        if context.usage is not None:
            context.usage.settle_with(api, message)
        encode = partial(response_frame, context.correlation_id, message, context.version)
        return [await asyncio.get_running_loop().run_in_executor(self._broker.codec, encode)]

    async def _answer_later(self, api: Api, context: Context, response: Awaitable[Message]) -> Reply:
        return self._answer(api, context, await response)

    def _wait_for(self, api: Api, context: Context, reply: Awaitable[Reply | None]) -> PendingReply:
        """Return a pending reply that is resolved when `reply` is done."""
        pending = PendingReply(context.connection)
        if context.usage is not None:
            reply = MeteredWork(reply, context.usage)
        task = asyncio.ensure_future(self._finish(api, context, reply, pending))
        if api.handle_frame is not None:
            # Cancel it only once it has begun: a coroutine that never runs does not release the memory it holds.
            pending.on_cancel = partial(asyncio.get_running_loop().call_soon, task.cancel)
        elif api.may_wait:
            pending.on_cancel = _ignore
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return pending

    async def _finish(self, api: Api, context: Context, reply: Awaitable[Reply | None], pending: PendingReply) -> None:
        try:
            pending.resolve(await reply)
        except MalformedRequestError as error:
            pending.refuse(error)
        except asyncio.CancelledError:
            pending.abort()  # no reply will come, and the client must not wait for one
            raise
        except Exception as error:
            peer = context.connection.peer
            limited_logger.error("%s v%d of %s failed", api.key.name, context.version, peer, exc_info=error)
            self._note_failure(api.key)
            pending.abort()

    def _answer(self, api: Api, context: Context, message: Message) -> Reply:
        self._note_error(api, message)
        if context.usage is not None:
            context.usage.settle_with(api, message)
        return [response_frame(context.correlation_id, message, context.version)]

    def _note_error(self, api: Api, message: Message) -> None:
        code = getattr(message, "error_code", 0)  # responses with errors per topic or partition have none
        if code:
            self._requests.errors[api.key, ErrorCode(code).name] += 1

    def _refuse(self, frame: memoryview) -> Reply:
        """Answer an unknown version of ApiVersions in version 0. Raises MalformedRequestError for any other API."""
        header, _ = read_request_header(frame)
        if header.api_key != ApiKey.API_VERSIONS:
            raise MalformedRequestError(f"API {header.api_key} version {header.api_version} is not served")
        response = unsupported_version(self._apis.values())
        return [response_frame(header.correlation_id, response, 0)]


def _hold_behind(resolved: Callable[[], None] | None, quotas: ActiveQuotas, session: Session, usage: Usage) -> None:
    """Hold a connection when its reply is known, if the request has used too much."""
    if resolved is not None:
        resolved()
    if usage.wait_s:
        quotas.hold(session.connection, usage.wait_s)


def _ignore() -> None:
    """Cancel nothing: the work that the request has started ends by itself."""
