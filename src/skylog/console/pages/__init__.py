"""The pages: one module per section of the console, with its routes."""

from __future__ import annotations

from typing import Final

from skylog.console.pages import (
    alerts,
    audit,
    brokers,
    cluster,
    groups,
    login,
    message_streams,
    messages,
    metrics,
    mirrors,
    overview,
    pipelines,
    replays,
    schemas,
    search,
    topics,
)
from skylog.console.server.page import Route

ROUTES: Final[tuple[Route, ...]] = (
    *overview.ROUTES,
    *cluster.ROUTES,
    *brokers.ROUTES,
    *topics.ROUTES,
    *messages.ROUTES,
    *message_streams.ROUTES,
    *replays.ROUTES,
    *groups.ROUTES,
    *audit.ROUTES,
    *mirrors.ROUTES,
    *pipelines.ROUTES,
    *alerts.ROUTES,
    *schemas.ROUTES,
    *search.ROUTES,
    *metrics.ROUTES,
    *login.ROUTES,
)
