"""The type of routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from skylog.registry.rest.call import Call

Handler = Callable[[Call], Awaitable[Any]]
"""Returns a response, or a JSON document."""


class Route(NamedTuple):
    method: str
    path: str
    handler: Handler
    is_change: bool


def reading(method: str, path: str, handler: Handler) -> Route:
    """A route that changes nothing: it is answered from the state, and may be called twice."""
    return Route(method, path, handler, False)


def changing(method: str, path: str, handler: Handler) -> Route:
    return Route(method, path, handler, True)
