"""Event tracking in ASGI applications: Starlette, FastAPI, Django's ASGI. Knows the protocol, no framework."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from skylog.events.event_log import EventLog

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class EventMiddleware:
    """Gives every HTTP request a scope, and sends what is buffered when the server stops.

    Events are handed over after each part of the response that was sent, so they neither delay it nor wait for the end
    of a long stream, and when the application is done with the request. A websocket has no scope: its events are handed
    over as they are fired.

    The stop of a server is `lifespan.shutdown`: uvicorn ends by the signal that stopped it, without exit handlers. For
    applications that do not take part in the lifespan protocol, the middleware does.
    """

    def __init__(self, app: Application, events: EventLog) -> None:
        self.app = app
        self.events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.events.request() as request:

            async def send_and_hand_over(message: Message) -> None:
                await send(message)
                if message["type"] == "http.response.body":
                    request.hand_over()

            await self.app(scope, receive, send_and_hand_over)

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_taken = False  # whether the application has begun to take part

        async def receive_for_application() -> Message:
            nonlocal is_taken
            is_taken = True
            return await receive()

        async def send_after_flush(message: Message) -> None:
            if message["type"].startswith("lifespan.shutdown"):
                await asyncio.to_thread(self.events.flush)
            await send(message)

        try:
            await self.app(scope, receive_for_application, send_after_flush)
        except Exception:  # how applications say that they know no lifespan; after their start it is an error
            if is_taken:
                raise
        if not is_taken:
            await _take_part(receive, send_after_flush)


async def _take_part(receive: Receive, send: Send) -> None:
    for phase in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{phase}.complete"})
