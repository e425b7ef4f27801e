"""The pages: one module for each section of the console, which lists its own routes."""

from __future__ import annotations

from typing import Final

from skylog.console.page import Route
from skylog.console.pages import (
    audit,
    groups,
    login,
    message_streams,
    messages,
    metrics,
    overview,
    pipelines,
    replays,
    topics,
)

ROUTES: Final[tuple[Route, ...]] = (
    *overview.ROUTES,
    *topics.ROUTES,
    *messages.ROUTES,
    *message_streams.ROUTES,
    *replays.ROUTES,
    *groups.ROUTES,
    *audit.ROUTES,
    *pipelines.ROUTES,
    *metrics.ROUTES,
    *login.ROUTES,
)
