"""`/pipelines`."""

from __future__ import annotations

from skylog.console.page import Route

ROUTES: tuple[Route, ...] = ()
