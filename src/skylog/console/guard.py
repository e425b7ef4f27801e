"""Who may do what: stands before every page. A browser is used against its owner unless somebody looks.

In this order a request is refused

* with 421 if it names a host that is not ours, where nobody has to log in: a foreign page that lets its own name point
  to this machine (DNS rebinding) would otherwise read everything;
* with 401, or the way to the login page, without the credentials that the settings ask for;
* with 403 if a page of another origin makes it, as the browser itself says (`Sec-Fetch-Site`, `Origin`), and it changes
  something or is more than a visitor following a link. A client that sends neither is no browser;
* with 403 if it changes something and the console is read-only.

What is let through gets headers that keep a page from running or loading anything that is not ours.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from skylog.console.credentials import Credentials
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
    "referrer-policy": "same-origin",  # with no-referrer a browser would call the origin of our own forms `null`
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """ASGI middleware around the whole console."""

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

        refusal = self._refusal(HTTPConnection(scope), scope["method"])
        if refusal is not None and refusal.status_code == 401 and "authorization" in Headers(scope=scope):
            await self._credentials.slow_down()
        await (refusal or self._app)(scope, receive, send_guarded)

    def _refusal(self, request: HTTPConnection, method: str) -> Response | None:
        path = request.scope["path"]
        is_public = path.startswith(PUBLIC)
        if not self._settings.wants_credentials and not self._is_our_host(request.headers):
            return _refuse(421, f"this console does not answer to the name {request.headers.get('host', '')!r}")
        if not is_public and not self._credentials.admit(request):
            return self._ask_for_credentials(request, method)
        is_change = method not in _SAFE_METHODS
        if not _is_same_origin(request.headers) and (is_change or not _is_visit(request.headers)):
            return _refuse(403, "this request comes from a page of another origin")
        if is_change and self._settings.read_only and path not in _CHANGES_NOTHING:
            return _refuse(403, "this console is read-only; start it without --read-only to change things")
        return None

    def _is_our_host(self, headers: Headers) -> bool:
        host = _name_in(headers.get("host", ""))
        return is_loopback(host) or host == self._settings.host

    def _ask_for_credentials(self, request: HTTPConnection, method: str) -> Response:
        if method == "GET" and "text/html" in request.headers.get("accept", ""):
            query = request.scope["query_string"].decode("latin-1")
            target = request.scope["path"] + (f"?{query}" if query else "")
            return RedirectResponse(f"/login?next={quote(target, safe='')}", 303)
        response = _refuse(401, "credentials are needed: a bearer token, or a user and a password")
        response.headers["www-authenticate"] = "Basic" if self._settings.user else "Bearer"
        return response


def _is_same_origin(headers: Headers) -> bool:
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers.get("host")


def _is_visit(headers: Headers) -> bool:
    """Whether somebody comes to a page, by a link on another site, rather than that site using it unseen."""
    mode, target = headers.get("sec-fetch-mode", "navigate"), headers.get("sec-fetch-dest", "document")
    return mode == "navigate" and target == "document"


def _name_in(host: str) -> str:
    """The name in a Host header, without a port."""
    if host.startswith("["):
        name, bracket, _ = host[1:].partition("]")
        return name if bracket else ""
    return host.partition(":")[0]


def _refuse(status: int, why: str) -> Response:
    return JSONResponse({"error": why}, status)
