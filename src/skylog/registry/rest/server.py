"""What is about the server: its root, its cluster, its version, contexts, metrics and health."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from skylog import __version__
from skylog.registry.rest.call import Call, answer
from skylog.registry.rest.routing import Route, reading
from skylog.web.prometheus_text import render

_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


async def root(call: Call) -> Any:
    return {}


async def cluster_id(call: Call) -> Any:
    names = {"kafka-cluster": call.registry.cluster_id, "schema-registry-cluster": call.registry.settings.group}
    return {"id": call.registry.cluster_id, "scope": {"path": [], "clusters": names}}


async def version(call: Call) -> Any:
    return {"version": __version__, "commitId": ""}


async def contexts(call: Call) -> Any:
    return call.page(call.state.contexts())


async def metrics(call: Call) -> Response:
    return Response(render(call.metrics()), media_type=_TEXT)


async def health(call: Call) -> Response:
    """Return 200 if schemas can be read, with who writes; otherwise 503.

    `can_write` is false for the elected one, too, if its last attempt to begin to write has failed.
    """
    registry = call.registry
    document = {
        "healthy": registry.is_current,
        "is_writer": registry.is_writer,
        "url": registry.url,
        "can_write": registry.is_writer and registry.problem is None,
    }
    return answer(document, 200 if registry.is_current else 503)


ROUTES: Final[tuple[Route, ...]] = (
    reading("GET", "/", root),
    reading("GET", "/v1/metadata/id", cluster_id),
    reading("GET", "/v1/metadata/version", version),
    reading("GET", "/contexts", contexts),
    reading("GET", "/metrics", metrics),
    reading("GET", "/health", health),
)
