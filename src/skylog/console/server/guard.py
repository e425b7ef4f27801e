"""Access control for every request, including protection against requests that other sites make through a browser.

Requests are rejected in this order:

* 421 if no credentials are required and the Host header names another host. Otherwise a foreign page whose name
  resolves to this machine (DNS rebinding) could read everything.
* 401, or a redirect to the login page, without the required credentials. If users of the cluster log in: 403 without
  the rights, 503 if the cluster cannot be asked.
* 403 if the browser reports another origin (`Sec-Fetch-Site`, `Origin`) and the request changes something or is not a
  navigation by a link. A client that sends neither header is not a browser.
* 403 if the request changes something and the console is read-only.

Responses get headers that forbid scripts, styles, frames and forms from elsewhere.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from skylog.console.settings import Settings
from skylog.web.access import SAFE_METHODS, Refusal, forbidden_change, foreign_host, foreign_origin
from skylog.web.credentials import Credentials

PUBLIC: Final = ("/health", "/login", "/static/")
_CHANGES_NOTHING: Final = ("/login", "/logout")
_CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS: Final = {
    "content-security-policy": _CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with no-referrer a browser sends `Origin: null` for our own forms
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """ASGI middleware that checks every request of the console."""

    def __init__(self, app: ASGIApp, settings: Settings, credentials: Credentials) -> None:
        self._app = app
        self._settings = settings
        self._credentials = credentials

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                if not scope["path"].startswith("/static/"):
                    headers["cache-control"] = "no-store"
            await send(message)

        rejection = await self._check(HTTPConnection(scope), scope["method"])
        await (rejection or self._app)(scope, receive, send_guarded)

    async def _check(self, request: HTTPConnection, method: str) -> Response | None:
        """Return the response that rejects the request, or None if it is allowed."""
        path = request.scope["path"]
        is_public = path.startswith(PUBLIC)
        refusal = foreign_host(self._settings, request.headers, "console")
        if refusal is None and not is_public:
            found = await self._credentials.check(request)
            refusal = found if isinstance(found, Refusal) else None
            if refusal is not None and refusal.status == 401:
                return self._request_credentials(refusal, request, method)
        refusal = refusal or foreign_origin(request.headers, method)
        if refusal is None and method not in SAFE_METHODS and path not in _CHANGES_NOTHING:
            refusal = forbidden_change(self._settings, "console")
        return None if refusal is None else _reject(*refusal)

    def _request_credentials(self, refusal: Refusal, request: HTTPConnection, method: str) -> Response:
        if method == "GET" and "text/html" in request.headers.get("accept", ""):
            query = request.scope["query_string"].decode("latin-1")
            target = request.scope["path"] + (f"?{query}" if query else "")
            return RedirectResponse(f"/login?next={quote(target, safe='')}", 303)
        response = _reject(*refusal)
        response.headers["www-authenticate"] = "Basic" if self._settings.asks_for_user else "Bearer"
        return response


def _reject(status: int, reason: str) -> Response:
    return JSONResponse({"error": reason}, status)
