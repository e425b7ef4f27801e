"""Access control for every request, including protection against requests that other sites make through a browser.

Requests are rejected in this order:

* 421 if no credentials are required and the Host header names another host. Otherwise a foreign page whose name
  resolves to this machine (DNS rebinding) could read everything.
* 401, or a redirect to the login page, without the required credentials.
* 403 if the browser reports another origin (`Sec-Fetch-Site`, `Origin`) and the request changes something or is not a
  navigation by a link. A client that sends neither header is not a browser.
* 403 if the request changes something and the console is read-only.

Responses get headers that forbid scripts, styles, frames and forms from elsewhere.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from skylog.console.server.credentials import Credentials
from skylog.console.settings import Settings, is_loopback

PUBLIC: Final = ("/health", "/login", "/static/")
_CHANGES_NOTHING: Final = ("/login", "/logout")
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
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

        rejection = self._check(HTTPConnection(scope), scope["method"])
        if rejection is not None and rejection.status_code == 401 and "authorization" in Headers(scope=scope):
            await self._credentials.delay_reject()
        await (rejection or self._app)(scope, receive, send_guarded)

    def _check(self, request: HTTPConnection, method: str) -> Response | None:
        """Return the response that rejects the request, or None if it is allowed."""
        path = request.scope["path"]
        is_public = path.startswith(PUBLIC)
        if not self._settings.requires_credentials and not self._is_our_host(request.headers):
            return _reject(421, f"this console does not serve the host {request.headers.get('host', '')!r}")
        if not is_public and not self._credentials.accept(request):
            return self._request_credentials(request, method)
        is_change = method not in _SAFE_METHODS
        if not _is_same_origin(request.headers) and (is_change or not _is_navigation(request.headers)):
            return _reject(403, "this request comes from a page of another origin")
        if is_change and self._settings.read_only and path not in _CHANGES_NOTHING:
            return _reject(403, "this console is read-only; start it without --read-only to make changes")
        return None

    def _is_our_host(self, headers: Headers) -> bool:
        host = _name_in(headers.get("host", ""))
        return is_loopback(host) or host == self._settings.host

    def _request_credentials(self, request: HTTPConnection, method: str) -> Response:
        if method == "GET" and "text/html" in request.headers.get("accept", ""):
            query = request.scope["query_string"].decode("latin-1")
            target = request.scope["path"] + (f"?{query}" if query else "")
            return RedirectResponse(f"/login?next={quote(target, safe='')}", 303)
        response = _reject(401, "credentials are required: a bearer token, or a user and a password")
        response.headers["www-authenticate"] = "Basic" if self._settings.user else "Bearer"
        return response


def _is_same_origin(headers: Headers) -> bool:
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers.get("host")


def _is_navigation(headers: Headers) -> bool:
    """Whether the browser opens a page, for example by a link, as opposed to a request from inside another page."""
    mode, target = headers.get("sec-fetch-mode", "navigate"), headers.get("sec-fetch-dest", "document")
    return mode == "navigate" and target == "document"


def _name_in(host: str) -> str:
    """Return the host in a Host header, without the port."""
    if host.startswith("["):
        name, bracket, _ = host[1:].partition("]")
        return name if bracket else ""
    return host.partition(":")[0]


def _reject(status: int, reason: str) -> Response:
    return JSONResponse({"error": reason}, status)
