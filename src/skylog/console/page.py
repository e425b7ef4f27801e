"""A page: one document, shown as HTML to people and as JSON to programs, under the same path.

A program asks with `Accept: application/json`, by the ending `.json` or with `?format=json`. With `?format=` an ending
`.json` is part of a name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from skylog.client import BrokerUnreachableError, GroupNotFoundError, TopicNotFoundError
from skylog.console.broker_beside import BrokerBesideError
from skylog.console.cluster import TooBusyError
from skylog.errors import KafkaError, SkylogError

if TYPE_CHECKING:
    from skylog.console.app import Console

ENDING: Final = ".json"
_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Page:
    """`document` has JSON's types only; the template sees its keys as variables."""

    template: str
    title: str
    document: Mapping[str, Any]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    is_heavy: bool = False
    """May take long to draw, by what messages hold: it is drawn in a thread, so that it holds up no other page."""


@dataclass(frozen=True, slots=True)
class Done:
    """Something was changed: people are sent to `location` to see it, programs get `document`."""

    location: str
    document: Mapping[str, Any]


View = Callable[[Request], Awaitable[Page | Done | Response]]
Route = tuple[str, View, list[str]]
"""Path, handler and methods."""

Endpoint = Callable[[Request], Awaitable[Response]]


def console_of(request: Request) -> Console:
    console: Console = request.app.state.console
    return console


def view(handler: View) -> Endpoint:
    """What a router calls: `handler`, with its page put into the form that was asked for, and its errors as pages."""

    async def endpoint(request: Request) -> Response:
        try:
            result = await handler(request)
        except SkylogError as error:
            result = Page("problem.html", "That did not work", {"error": str(error)}, status_of(error))
        if isinstance(result, Response):
            return result
        if wants_json(request):
            status = result.status if isinstance(result, Page) else 200
            headers = result.headers if isinstance(result, Page) else {}
            return Response(orjson.dumps(result.document), status, headers, _JSON)
        if isinstance(result, Done):
            return RedirectResponse(result.location, 303)
        render = console_of(request).render
        html = await asyncio.to_thread(render, request, result) if result.is_heavy else render(request, result)
        return Response(html, result.status, result.headers, "text/html; charset=utf-8")

    endpoint.__name__ = handler.__name__
    return endpoint


def status_of(error: SkylogError) -> int:
    if isinstance(error, TopicNotFoundError | GroupNotFoundError):
        return 404
    if isinstance(error, BrokerUnreachableError | BrokerBesideError | TooBusyError):
        return 503
    return 409 if isinstance(error, KafkaError) else 400


def wants_json(request: Request) -> bool:
    wanted = request.query_params.get("format") or request.scope.get("skylog_format")
    if wanted:
        return bool(wanted == "json")
    accepted = request.headers.get("accept", "")
    return _JSON in accepted and "text/html" not in accepted


class Endings:
    """ASGI middleware that takes `.json` from a path and remembers it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].endswith(ENDING) and not _names_format(scope["query_string"]):
            scope = {**scope, "path": scope["path"].removesuffix(ENDING) or "/", "skylog_format": "json"}
        await self._app(scope, receive, send)


def _names_format(query: bytes) -> bool:
    return any(part.startswith(b"format=") for part in query.split(b"&"))
