"""Event tracking in ASGI applications: Starlette, FastAPI, Django's ASGI. Depends on the protocol, not a framework."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from skylog.events.event_log import EventLog

Scope = MutableMapping[str, Any]
AsgiEvent = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiEvent]]
Send = Callable[[AsgiEvent], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class EventMiddleware:
    """Opens a scope for every HTTP request, and sends buffered events when the server stops.

    Events are passed to the producer after each sent part of the response, and when the application has finished the
    request. So they neither delay the response nor wait for the end of a long stream. A websocket has no scope: its
    events are passed on immediately.

    A server stops with `lifespan.shutdown`: uvicorn exits by the signal that stopped it, without exit handlers. Events
    that cannot be sent then are logged. If the application does not support the lifespan protocol, the middleware
    handles it.
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

            async def send_and_hand_over(message: AsgiEvent) -> None:
                await send(message)
                if message["type"] == "http.response.body":
                    request.hand_over()

            await self.app(scope, receive, send_and_hand_over)

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_taken = False  # whether the application handles the lifespan

        async def receive_for_application() -> AsgiEvent:
            nonlocal is_taken
            is_taken = True
            return await receive()

        async def send_after_flush(message: AsgiEvent) -> None:
            if message["type"].startswith("lifespan.shutdown"):
                await asyncio.to_thread(self.events.close)
            await send(message)

        try:
            await self.app(scope, receive_for_application, send_after_flush)
        except Exception:  # an application without lifespan support raises; after it has received, it is an error
            if is_taken:
                raise
        if not is_taken:
            await _handle_lifespan(receive, send_after_flush)


async def _handle_lifespan(receive: Receive, send: Send) -> None:
    for phase in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{phase}.complete"})
