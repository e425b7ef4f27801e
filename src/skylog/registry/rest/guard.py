"""Access control for every request, with the rules of `skylog.web.access`. Errors have the form of the API."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from skylog.registry.rest.call import answer
from skylog.registry.settings import RegistrySettings
from skylog.web.access import Refusal, foreign_host, foreign_origin
from skylog.web.credentials import Credentials

PUBLIC: Final = "/health"
VISITOR: Final = "skylog_visitor"
"""Where the scope of a request has the Visitor who sends it."""
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'"),
    (b"cache-control", b"no-store"),
)


class Guard:
    """ASGI middleware that checks every request of the registry."""

    def __init__(self, app: ASGIApp, settings: RegistrySettings, credentials: Credentials) -> None:
        self._app = app
        self._settings = settings
        self._credentials = credentials

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        headers = Headers(scope=scope)
        refusal = foreign_host(self._settings, headers, "registry")
        if refusal is None and scope["path"] != PUBLIC:
            found = await self._credentials.check(HTTPConnection(scope))
            if isinstance(found, Refusal):
                refusal = found
            else:
                scope[VISITOR] = found
        refusal = refusal or foreign_origin(headers, scope["method"])
        await (self._app if refusal is None else self._reject(refusal))(scope, receive, send_guarded)

    def _reject(self, refusal: Refusal) -> ASGIApp:
        scheme = 'Basic realm="skylog registry"' if self._settings.asks_for_user else "Bearer"
        headers = {"www-authenticate": scheme} if refusal.status == 401 else {}
        return answer({"error_code": refusal.status, "message": refusal.reason}, refusal.status, headers)
