"""`/login`, which exchanges credentials for a session cookie, and `/logout`."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from skylog.console.server.fields import body
from skylog.console.server.page import Page, Route, console_of
from skylog.web.access import Refusal
from skylog.web.credentials import COOKIE, MISSING, SESSION_S


async def login(request: Request) -> Page | Response:
    target = _own_path(request.query_params.get("next", "/"))
    if request.method == "GET":
        return _form(target)
    fields = await body(request)
    credentials = console_of(request).credentials
    if fields.has("token"):
        found = credentials.session() if credentials.is_token(fields.text("token").strip()) else MISSING
    else:
        found = await credentials.log_in(fields.text("user", ""), fields.text("password", ""))
    if isinstance(found, Refusal) and found.status == 401:
        await credentials.delay_reject()
        return _form(target, "Wrong credentials. Try again.", 401)
    if isinstance(found, Refusal):
        return _form(target, found.reason, found.status)
    response = RedirectResponse(target, 303)
    is_secure = request.scope["scheme"] == "https"
    response.set_cookie(COOKIE, found, SESSION_S, httponly=True, samesite="strict", secure=is_secure)
    return response


async def logout(request: Request) -> Response:
    console_of(request).credentials.log_out(request)
    response = RedirectResponse("/login", 303)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response


def _form(target: str, error: str = "", status: int = 200) -> Page:
    return Page("login.html", "Log in", {"next": target, "error": error}, status)


def _own_path(target: str) -> str:
    """Return `target` if it is a path of the console, or `/`. Browsers take `//host` and `/\\host` for other sites."""
    is_ours = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_ours else "/"


ROUTES: Final[tuple[Route, ...]] = (("/login", login, ["GET", "POST"]), ("/logout", logout, ["POST"]))
