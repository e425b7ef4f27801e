"""The registry's ASGI application: its routes, its errors, and access to it."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from skylog.client.cluster_users import ClusterUsers, registry_rights
from skylog.metric import Metric
from skylog.registry.errors import RegistryError
from skylog.registry.registry import Registry
from skylog.registry.rest import compatibility, config, mode, schemas, server, subjects
from skylog.registry.rest.call import CONTEXT, Call, answer
from skylog.registry.rest.forwarding import Forwarder
from skylog.registry.rest.guard import VISITOR, Guard
from skylog.registry.rest.metrics import RequestCounts, registry_metrics
from skylog.registry.rest.routing import Route
from skylog.registry.subjects import parse_context
from skylog.web.access import Refusal, forbidden_change
from skylog.web.credentials import Credentials

logger = logging.getLogger(__name__)

ROUTES: Final[tuple[Route, ...]] = (
    *server.ROUTES,
    *subjects.ROUTES,
    *schemas.ROUTES,
    *config.ROUTES,
    *mode.ROUTES,
    *compatibility.ROUTES,
)
_UNREAD: Final = frozenset({"/", "/health", "/metrics"})
"""Paths that do not wait until the topic is read."""
_CONTEXT_PATH: Final = re.compile(r"/contexts/([^/]+)(/.*)")

Endpoint = Callable[[Request], Awaitable[Response]]


class Service:
    """What the endpoints share."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.forwarder = Forwarder(registry)
        self.counts = RequestCounts()

    def metrics(self) -> list[Metric]:
        return [*registry_metrics(self.registry, self.forwarder), *self.counts.metrics()]

    def endpoint(self, route: Route) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            began = time.monotonic()
            try:
                response = await self._respond(route, request)
            except RegistryError as error:
                response = answer(error.document(), error.status)
            self.counts.add(request.method, route.path, response.status_code, time.monotonic() - began)
            return response

        return endpoint

    async def _respond(self, route: Route, request: Request) -> Response:
        refusal = self._forbidden_change(request) if route.is_change else None
        if refusal is not None:
            raise RegistryError(*refusal)
        if route.path not in _UNREAD:
            await self.registry.ready()
        call = Call(request, self.registry, self.forwarder, self.metrics)
        await call.read_body()
        try:
            found = await route.handler(call)
        except RegistryError as error:
            if route.is_change or not (error.is_not_found or error.code == 42201):
                raise
            await self.registry.refresh()  # another registry may just have written it
            found = await route.handler(call)
        return found if isinstance(found, Response) else answer(found)

    def _forbidden_change(self, request: Request) -> Refusal | None:
        settings, visitor = self.registry.settings, request.scope[VISITOR]
        if visitor.may_change:
            return forbidden_change(settings, "registry")
        topic = settings.topic
        reason = f"{visitor.name} may not change schemas: `skylog acls add {visitor.name} write --topic {topic}`"
        return Refusal(403, reason)


class RawPaths:
    """ASGI middleware that routes by the path as it was sent, so that a subject may have an encoded slash.

    It also takes a context out of a path: `/contexts/.west/subjects` are the subjects of `.west`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = scope["raw_path"].decode("ascii", errors="replace")
            match = _CONTEXT_PATH.fullmatch(path)
            try:
                more = {} if match is None else {CONTEXT: parse_context(match[1])}
            except RegistryError as error:
                await answer(error.document(), error.status)(scope, receive, send)
                return
            scope = {**scope, "path": (path if match is None else match[2]).rstrip("/") or "/", **more}
        await self._app(scope, receive, send)


def create_app(registry: Registry) -> Starlette:
    """Create the ASGI application of a registry that is started."""
    service, settings = Service(registry), registry.settings
    query = registry_rights(registry.connection, settings.topic)
    users = ClusterUsers(registry.connection, query) if settings.asks_users else None
    return Starlette(
        routes=[StarletteRoute(each.path, service.endpoint(each), methods=[each.method]) for each in ROUTES],
        middleware=[
            Middleware(Guard, settings=settings, credentials=Credentials(settings, users)),
            Middleware(RawPaths),
        ],
        exception_handlers={HTTPException: _http_error, Exception: partial(_failure, service)},
    )


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {404: "HTTP 404 Not Found", 405: "HTTP 405 Method Not Allowed"}
    message = words.get(error.status_code, error.detail)
    return answer({"error_code": error.status_code, "message": message}, error.status_code, dict(error.headers or {}))


async def _failure(service: Service, request: Request, error: Exception) -> Response:
    service.counts.add(request.method, "failed", 500, 0.0)
    logger.error("cannot answer %s %s", request.method, request.scope["path"], exc_info=error)
    return answer({"error_code": 500, "message": f"Internal Server Error: {type(error).__name__}"}, 500)
