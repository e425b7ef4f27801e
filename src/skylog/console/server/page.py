"""A page: one document, sent as HTML to browsers and as JSON to programs, under the same path.

A program requests JSON with `Accept: application/json`, the suffix `.json` or `?format=json`. If the query has a
`format`, the suffix `.json` is part of the name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from skylog.client import BrokerUnreachableError, GroupNotFoundError, TopicNotFoundError
from skylog.console.cluster.client_pool import TooBusyError
from skylog.console.cluster.parent_broker import ParentBrokerError
from skylog.console.messages.json_layout import encode
from skylog.console.server.clusters import CLUSTER, prefix_of
from skylog.console.server.fields import FORM
from skylog.errors import KafkaError, SkylogError
from skylog.schemas.registry_client import SchemaNotFoundError
from skylog.schemas.registry_http import RegistryUnreachableError

if TYPE_CHECKING:
    from skylog.console.app import Console

JSON_SUFFIX: Final = ".json"
_JSON: Final = "application/json"
REJECTED: Final = "skylog_rejected"
FIRST: Final = ""
"""The name of the first cluster in paths."""


@dataclass(frozen=True, slots=True)
class Page:
    """`document` has JSON types only. Its keys are variables of the template."""

    template: str
    title: str
    document: Mapping[str, Any]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    is_heavy: bool = False
    """Rendering may take long, depending on messages. The page is rendered in a thread, so it delays no other page."""


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The result of a change: browsers are redirected to `location`, programs get `document`."""

    location: str
    document: Mapping[str, Any]


class UnknownClusterError(SkylogError):
    """The path names a cluster that this console does not have."""


View = Callable[[Request], Awaitable[Page | ActionResult | Response]]
Route = tuple[str, View, list[str]]
"""Path, handler and methods."""

Endpoint = Callable[[Request], Awaitable[Response]]


def console_of(request: Request) -> Console:
    """Return the console of the cluster that the request is about. Raises UnknownClusterError."""
    consoles: Mapping[str, Console] = request.app.state.consoles
    name = request.scope.get(CLUSTER, FIRST)
    if name not in consoles:
        raise UnknownClusterError(f"this console has no cluster '{name}'")
    return consoles[name]


def view(handler: View) -> Endpoint:
    """Wrap a handler for the router: render its page in the requested format, and its errors as pages."""

    async def endpoint(request: Request) -> Response:
        try:
            result = await handler(request)
        except SkylogError as error:
            result = await _rejected(handler, request, error)
        if isinstance(result, Response):
            return result
        if is_json_requested(request):
            status = result.status if isinstance(result, Page) else 200
            headers = result.headers if isinstance(result, Page) else {}
            return Response(encode(result.document), status, headers, _JSON)
        if isinstance(result, ActionResult):
            return RedirectResponse(prefix_of(request.scope) + result.location, 303)
        render = _renderer(request)
        html = await asyncio.to_thread(render, request, result) if result.is_heavy else render(request, result)
        return Response(html, result.status, result.headers, "text/html; charset=utf-8")

    endpoint.__name__ = handler.__name__
    return endpoint


def _renderer(request: Request) -> Callable[[Request, Page], str]:
    """Return the function that renders pages. A cluster that does not exist has those of the first."""
    try:
        return console_of(request).render
    except UnknownClusterError:
        del request.scope[CLUSTER]
        return console_of(request).render


async def _rejected(handler: View, request: Request, error: SkylogError) -> Page | ActionResult | Response:
    """Return the page of a form that was rejected, as it was filled in, with the reason. Otherwise, only the reason."""
    problem = Page("problem.html", "Error", {"error": str(error)}, status_of(error))
    if FORM not in request.scope or is_json_requested(request):
        return problem
    request.scope.update(method="GET", **{REJECTED: str(error)})
    try:
        page = await handler(request)
    except SkylogError:
        return problem
    return replace(page, status=status_of(error)) if isinstance(page, Page) else problem


def status_of(error: SkylogError) -> int:
    if isinstance(error, TopicNotFoundError | GroupNotFoundError | UnknownClusterError | SchemaNotFoundError):
        return 404
    if isinstance(error, BrokerUnreachableError | ParentBrokerError | TooBusyError | RegistryUnreachableError):
        return 503
    return 409 if isinstance(error, KafkaError) else 400


def is_json_requested(request: Request) -> bool:
    requested = request.query_params.get("format") or request.scope.get("skylog_format")
    if requested:
        return bool(requested == "json")
    accepted = request.headers.get("accept", "")
    return _JSON in accepted and "text/html" not in accepted


class JsonSuffix:
    """ASGI middleware that removes `.json` from a path and notes the format in the scope."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].endswith(JSON_SUFFIX) and not _has_format(scope["query_string"]):
            scope = {**scope, "path": scope["path"].removesuffix(JSON_SUFFIX) or "/", "skylog_format": "json"}
        await self._app(scope, receive, send)


def _has_format(query: bytes) -> bool:
    return any(part.startswith(b"format=") for part in query.split(b"&"))
