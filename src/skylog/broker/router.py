"""From a frame to its handler: reads the request header, picks the handler, frames the answer.

A request that cannot be read closes its connection, as in Kafka; so does an API or version that is not served, but for
ApiVersions, which must be answered whatever its version. What a handler lets escape is logged and closes that one
connection.

A large request is decoded, and its answer encoded, in a thread: either can take longer than others should wait.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Iterable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple

from skylog.broker.api import Api, Context
from skylog.broker.handlers.api_versions import unsupported_version
from skylog.broker.held_frame import HeldFrame
from skylog.broker.metrics.requests import RequestTimes
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

limited_logger = LimitedLogger(logging.getLogger(__name__))  # clients can provoke all of it

_HEADER: Final = struct.Struct(">iih")  # API and version, correlation id, length of the client id


class Route(NamedTuple):
    """What is known of one version of an API before a request comes."""

    api: Api
    is_flexible: bool
    times: RequestTimes


class Router:
    """The handler of every connection."""

    def __init__(self, broker: Broker, apis: Iterable[Api]) -> None:
        self._broker = broker
        self._requests = broker.requests
        self._apis = {int(api.key): api for api in apis}
        self._routes = {
            api.key << 16 | version: Route(
                api, version >= API_SPECS[api.key].request.flexible.low, self._requests[api.key, version]
            )
            for api in self._apis.values()
            for version in range(api.low, api.high + 1)
        }
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, connection: Connection, frame: memoryview) -> Reply | PendingReply | None:
        try:
            return self._route(connection, frame)
        except MalformedRequestError:
            raise
        except Exception as error:
            limited_logger.error(
                "a request of %s failed (API and version %s)", connection.peer, frame[:4].hex(), exc_info=error
            )
            self._note_failure(int.from_bytes(frame[:2], "big"))
            connection.close()
            return None

    def _note_failure(self, api_key: int) -> None:
        self._requests.errors[api_key, ErrorCode.UNKNOWN_SERVER_ERROR.name] += 1

    def _route(self, connection: Connection, frame: memoryview) -> Reply | PendingReply | None:
        try:
            api_and_version, correlation_id, client_id_length = _HEADER.unpack_from(frame)
        except struct.error:
            raise MalformedRequestError("the request ends inside its header") from None
        route = self._routes.get(api_and_version)
        if route is None:
            return self._refuse(frame)
        api, is_flexible, times = route
        at_once, tick = times.at_once, connection.last_activity
        began = perf_counter() if tick != at_once.timed_at else 0.0
        position = 10 + client_id_length if client_id_length >= 0 else 10
        if client_id_length < -1 or position > len(frame):
            raise MalformedRequestError(f"a client id of {client_id_length} bytes leaves the request")
        client_id = str(frame[10:position], "utf-8", "replace") if client_id_length >= 0 else None
        if is_flexible:
            tag_count, position = read_uvarint(frame, position)
            if tag_count:
                position = skip_tagged_fields(frame, position, tag_count)
        context = Context(self._broker, connection, api_and_version & 0xFFFF, correlation_id, client_id)
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
        assert api.handle is not None
        held = HeldFrame.of_large(context.connection, frame)
        if held is not None:
            return self._handle_large(api, context, held, position)
        request, _ = API_SPECS[api.key].request.read(frame, context.version, position)
        response = api.handle(context, request)
        if api.has_large_answers:
            return self._answer_aside(api, context, response)
        if isinstance(response, Message):
            return self._answer(api, context, response)
        return self._answer_later(api, context, response)

    async def _handle_large(self, api: Api, context: Context, held: HeldFrame, position: int) -> Reply:
        assert api.handle is not None
        decode = partial(API_SPECS[api.key].request.read, held.data, context.version, position)
        with held:
            request, _ = await asyncio.get_running_loop().run_in_executor(self._broker.codec, decode)
        return await self._answer_aside(api, context, api.handle(context, request))

    async def _answer_aside(self, api: Api, context: Context, response: Message | Awaitable[Message]) -> Reply:
        """Encode the answer in a thread."""
        message = response if isinstance(response, Message) else await response
        self._note_error(api, message)
        encode = partial(response_frame, context.correlation_id, message, context.version)
        return [await asyncio.get_running_loop().run_in_executor(self._broker.codec, encode)]

    async def _answer_later(self, api: Api, context: Context, response: Awaitable[Message]) -> Reply:
        return self._answer(api, context, await response)

    def _wait_for(self, api: Api, context: Context, reply: Awaitable[Reply | None]) -> PendingReply:
        """A pending reply that is resolved when `reply` is there."""
        pending = PendingReply(context.connection)
        task = asyncio.ensure_future(self._finish(api, context, reply, pending))
        if api.handle_frame is not None:
            # Once it has begun: a coroutine that never runs does not give back what it was handed.
            pending.on_cancel = partial(asyncio.get_running_loop().call_soon, task.cancel)
        elif api.may_wait:
            pending.on_cancel = _let_go
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return pending

    async def _finish(self, api: Api, context: Context, reply: Awaitable[Reply | None], pending: PendingReply) -> None:
        try:
            pending.resolve(await reply)
        except MalformedRequestError as error:
            pending.refuse(error)
        except Exception as error:
            peer = context.connection.peer
            limited_logger.error("%s v%d of %s failed", api.key.name, context.version, peer, exc_info=error)
            self._note_failure(api.key)
            pending.abort()

    def _answer(self, api: Api, context: Context, message: Message) -> Reply:
        self._note_error(api, message)
        return [response_frame(context.correlation_id, message, context.version)]

    def _note_error(self, api: Api, message: Message) -> None:
        code = getattr(message, "error_code", 0)  # answers that are by topic or partition have none of their own
        if code:
            self._requests.errors[api.key, ErrorCode(code).name] += 1

    def _refuse(self, frame: memoryview) -> Reply:
        """Answer ApiVersions of an unknown version in the form of version 0; close the connection of anything else."""
        header, _ = read_request_header(frame)
        if header.api_key != ApiKey.API_VERSIONS:
            raise MalformedRequestError(f"API {header.api_key} version {header.api_version} is not served")
        response = unsupported_version(self._apis.values())
        return [response_frame(header.correlation_id, response, 0)]


def _let_go() -> None:
    """The client has left, or the broker stops: what the request has set going ends by itself."""
