"""Event tracking in WSGI applications: Flask, Pyramid, Django's WSGI. Depends on the protocol, not a framework."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from skylog.events.event_log import EventLog, RequestScope

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


class EventMiddleware:
    """Opens a scope for every request, from the call of the application to the close of its response."""

    def __init__(self, app: WSGIApplication, events: EventLog) -> None:
        self.app = app
        self.events = events

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = self.events.request()
        request.__enter__()
        try:
            return _Response(self.app(environ, start_response), request)
        except BaseException:
            request.__exit__()
            raise


class _Response:
    """Wraps the application's response. When the server requests a part, the previous one has been sent."""

    def __init__(self, body: Iterable[bytes], request: RequestScope) -> None:
        self._body = body
        self._request = request

    def __iter__(self) -> Iterator[bytes]:
        for part in self._body:
            yield part
            self._request.hand_over()

    def close(self) -> None:
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            self._request.__exit__()
