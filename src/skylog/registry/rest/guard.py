"""Access control for every request, with the rules of `skylog.web.access`. Errors have the form of the API."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from skylog.registry.rest.call import answer
from skylog.registry.settings import RegistrySettings
from skylog.web.access import foreign_host, foreign_origin
from skylog.web.credentials import Credentials

PUBLIC: Final = "/health"
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'"),
    (b"cache-control", b"no-store"),
)


class Guard:
    """ASGI middleware that checks every request of the registry."""

    def __init__(self, app: ASGIApp, settings: RegistrySettings) -> None:
        self._app = app
        self._settings = settings
        self._credentials = Credentials(settings)

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
        if refusal is None and scope["path"] != PUBLIC and not self._credentials.accept(HTTPConnection(scope)):
            if "authorization" in headers:
                await self._credentials.delay_reject()
            await self._unauthorized()(scope, receive, send_guarded)
            return
        refusal = refusal or foreign_origin(headers, scope["method"])
        if refusal is not None:
            document = {"error_code": refusal.status, "message": refusal.reason}
            await answer(document, refusal.status)(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)

    def _unauthorized(self) -> ASGIApp:
        scheme = 'Basic realm="skylog registry"' if self._settings.user else "Bearer"
        document = {"error_code": 401, "message": "credentials are required: a user and a password, or a bearer token"}
        return answer(document, 401, {"www-authenticate": scheme})
