"""`/metrics` for Prometheus and `/health` for orchestrators."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from skylog.console.monitoring.exported import audit_metrics, cluster_metrics, complete_lags
from skylog.console.server.page import Route, console_of
from skylog.errors import SkylogError
from skylog.web.access import Refusal
from skylog.web.prometheus_text import render

if TYPE_CHECKING:
    from skylog.console.app import Console

_TIMEOUT_S: Final = 2.0
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


async def metrics(request: Request) -> Response:
    """Return the metrics of the parent broker or, without one, of the latest snapshot; and those of the audit."""
    console = console_of(request)
    if console.broker is not None:
        found = complete_lags(await console.broker.metrics(), console.monitor.latest)
    else:
        await console.monitor.first_attempt()
        await console.replicas.first_attempt()
        found = cluster_metrics(console.monitor.latest, console.replicas.latest, is_up=console.monitor.is_up)
    found += audit_metrics(await console.audit.windows_of_last_day())
    # In a thread: with many groups and partitions this takes seconds.
    return Response(await asyncio.to_thread(render, found), media_type=_TEXT)


async def health(request: Request) -> Response:
    """Return 200 if the broker, or the cluster, responds and reports no problem; otherwise 503 with the reasons."""
    console = console_of(request)
    try:
        if console.broker is not None:
            document = dict(await console.broker.health())
        else:
            document = await _cluster_health(console)
    except SkylogError as error:
        document = {"healthy": False, "problems": [str(error)]}
    status = 200 if document["healthy"] else 503
    if isinstance(await console.credentials.check(request), Refusal):
        document = {"healthy": document["healthy"]}  # reasons may contain names, which need credentials
    return Response(orjson.dumps(document), status, media_type="application/json")


async def _cluster_health(console: Console) -> dict[str, Any]:
    """Return the result of the latest snapshot, so that probes send no requests to the cluster."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            await console.monitor.first_attempt()
    except TimeoutError:
        return {"healthy": False, "problems": ["there is no snapshot of the cluster yet"]}
    doubt = console.monitor.doubt
    return {"healthy": console.monitor.is_up, "problems": [doubt] if doubt else []}


ROUTES: Final[tuple[Route, ...]] = (("/metrics", metrics, ["GET"]), ("/health", health, ["GET"]))
