"""`/mode`: whether schemas can be registered, for all subjects, a context or one subject."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from skylog.registry.changes import Change, delete_mode, set_mode
from skylog.registry.errors import invalid_mode, no_subject_mode
from skylog.registry.rest.call import Call
from skylog.registry.rest.config import scope_of
from skylog.registry.rest.routing import Route, changing, reading
from skylog.registry.state import Mode


async def get_mode(call: Call) -> Any:
    scope = scope_of(call)
    is_any = scope is None or call.flag("defaultToGlobal")
    found = call.state.mode_in_scope(scope) if is_any else call.state.mode(scope)
    if found is None:
        assert scope is not None
        raise no_subject_mode(scope)
    return {"mode": found.value}


async def put_mode(call: Call) -> Response:
    scope, force = scope_of(call), call.flag("force")
    try:
        mode = Mode(str(call.body().get("mode", "")).upper())
    except ValueError:
        raise invalid_mode() from None

    async def decide() -> Change:
        return set_mode(call.state, scope, mode, force=force)

    return await call.make(decide)


async def remove_mode(call: Call) -> Response:
    subject = call.subject()

    async def decide() -> Change:
        return delete_mode(call.state, subject)

    return await call.make(decide)


ROUTES: Final[tuple[Route, ...]] = (
    reading("GET", "/mode", get_mode),
    changing("PUT", "/mode", put_mode),
    reading("GET", "/mode/{subject}", get_mode),
    changing("PUT", "/mode/{subject}", put_mode),
    changing("DELETE", "/mode/{subject}", remove_mode),
)
