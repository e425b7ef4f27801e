"""`/metrics` for Prometheus and `/health` for orchestrators."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from skylog.console.page import Route, console_of
from skylog.console.prometheus_text import render
from skylog.errors import SkylogError

if TYPE_CHECKING:
    from skylog.console.app import Console

_PATIENCE_S: Final = 2.0
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


async def metrics(request: Request) -> Response:
    """The broker's metrics of this moment; of a cluster without such a broker, what the console has seen of it."""
    console = console_of(request)
    if console.broker is not None:
        found = await console.broker.metrics()
    else:
        await console.watch.first_look()
        found = console.watch.metrics()
    # With many groups and partitions this takes seconds.
    return Response(await asyncio.to_thread(render, found), media_type=_TEXT)


async def health(request: Request) -> Response:
    """200 while the broker, or the cluster, answers and has no problem of its own; 503 otherwise, with the reasons."""
    console = console_of(request)
    try:
        if console.broker is not None:
            document = dict(await console.broker.health())
        else:
            document = await _last_look(console)
    except SkylogError as error:
        document = {"healthy": False, "problems": [str(error)]}
    status = 200 if document["healthy"] else 503
    if not console.credentials.admit(request):
        document = {"healthy": document["healthy"]}  # open to everybody, so it tells no names
    return Response(orjson.dumps(document), status, media_type="application/json")


async def _last_look(console: Console) -> dict[str, Any]:
    """Probes cost the cluster nothing: it is looked at every few seconds anyway."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await console.watch.first_look()
    except TimeoutError:
        return {"healthy": False, "problems": ["the cluster has not been seen yet"]}
    return {"healthy": console.watch.is_up, "problems": [console.watch.problem] if console.watch.problem else []}


ROUTES: Final[tuple[Route, ...]] = (("/metrics", metrics, ["GET"]), ("/health", health, ["GET"]))
