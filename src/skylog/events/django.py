"""Event tracking in Django, behind WSGI and ASGI, for sync and async views.

# settings.py
MIDDLEWARE = ["skylog.events.django.EventMiddleware", ...]
SKYLOG_EVENTS = "blog.tracking.events"  # the EventLog, or its dotted path
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from skylog.events.event_log import EventLog


class EventMiddleware:
    """Opens a scope for every request. Events of a streamed body are fired after it, and passed on one by one."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        self.get_response = get_response
        self.events = _configured()
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, request: Any) -> Any:
        if self._is_async:
            return self._respond(request)
        with self.events.request():
            return self.get_response(request)

    async def _respond(self, request: Any) -> Any:
        with self.events.request():
            response: Awaitable[Any] = self.get_response(request)
            return await response


def _configured() -> EventLog:
    value = getattr(settings, "SKYLOG_EVENTS", None)
    events = import_string(value) if isinstance(value, str) else value
    if not isinstance(events, EventLog):
        raise ImproperlyConfigured(
            f"SKYLOG_EVENTS is {value!r}: set it to an EventLog, or to the dotted path of one, such as "
            '"blog.tracking.events"'
        )
    return events
