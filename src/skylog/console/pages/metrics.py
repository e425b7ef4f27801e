"""`/metrics` for Prometheus and `/health` for orchestrators."""

from __future__ import annotations

from typing import Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from skylog.console.page import Route, console_of
from skylog.console.prometheus_text import render
from skylog.errors import SkylogError

_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


async def metrics(request: Request) -> Response:
    """The broker's metrics of this moment; of a cluster without such a broker, what the console has seen of it."""
    console = console_of(request)
    if console.broker is not None:
        found = await console.broker.metrics()
    else:
        await console.watch.first_look()
        found = console.watch.metrics()
    return Response(render(found), media_type=_TEXT)


async def health(request: Request) -> Response:
    """200 while the broker, or the cluster, answers and has no problem of its own; 503 otherwise, with the reasons."""
    console = console_of(request)
    try:
        if console.broker is not None:
            document = dict(await console.broker.health())
        else:
            await console.cluster.ask(lambda clients: clients.admin.list_topics())
            document = {"healthy": True, "problems": []}
    except SkylogError as error:
        document = {"healthy": False, "problems": [str(error)]}
    status = 200 if document["healthy"] else 503
    if not console.credentials.admit(request):
        document = {"healthy": document["healthy"]}  # open to everybody, so it tells no names
    return Response(orjson.dumps(document), status, media_type="application/json")


ROUTES: Final[tuple[Route, ...]] = (("/metrics", metrics, ["GET"]), ("/health", health, ["GET"]))
