"""`/config`: the compatibility level of all subjects, of a context or of one subject; and whether to normalize."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from skylog.registry.changes import Change, delete_config, set_config
from skylog.registry.errors import invalid_level, no_subject_config, unprocessable
from skylog.registry.rest.call import Call
from skylog.registry.rest.routing import Route, changing, reading
from skylog.registry.state import LEVEL
from skylog.schemas.levels import CompatibilityLevel

_NORMALIZE: Final = "normalize"
_KNOWN: Final = frozenset({"compatibility", LEVEL, _NORMALIZE})


def scope_of(call: Call) -> str | None:
    """Return the subject in the path; without one, the context in the path, None for everything."""
    if call.has_subject:
        return call.subject()
    return call.context_name


async def get_config(call: Call) -> Any:
    scope = scope_of(call)
    if scope is None or call.flag("defaultToGlobal"):
        return call.state.config_in_scope(scope)
    found = call.state.config(scope)
    if found is None:
        raise no_subject_config(scope)
    return dict(found)


async def put_config(call: Call) -> Response:
    scope, given = scope_of(call), {name: value for name, value in call.body().items() if value is not None}
    for name in given.keys() - _KNOWN:
        raise unprocessable(f"this registry does not support '{name}' in a config; leave it out")
    level, normalize = given.get("compatibility", given.get(LEVEL)), given.get(_NORMALIZE)
    if (level is None and normalize is None) or not isinstance(normalize, bool | None):
        raise invalid_level()
    changed: dict[str, Any] = {} if normalize is None else {_NORMALIZE: normalize}
    if level is not None:
        try:
            changed[LEVEL] = CompatibilityLevel(str(level).upper()).value
        except ValueError:
            raise invalid_level() from None

    async def decide() -> Change:
        shown = {"compatibility": changed[LEVEL]} if LEVEL in changed else {}
        return set_config(call.state, scope, changed, shown | {key: changed[key] for key in changed if key != LEVEL})

    return await call.make(decide)


async def remove_config(call: Call) -> Response:
    scope = scope_of(call)

    async def decide() -> Change:
        return delete_config(call.state, scope)

    return await call.make(decide)


ROUTES: Final[tuple[Route, ...]] = tuple(
    route
    for path in ("/config", "/config/{subject}")
    for route in (
        reading("GET", path, get_config),
        changing("PUT", path, put_config),
        changing("DELETE", path, remove_config),
    )
)
