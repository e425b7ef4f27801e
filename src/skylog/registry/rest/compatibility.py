"""`/compatibility`: whether a schema could be registered."""

from __future__ import annotations

from typing import Any, Final

from skylog.registry.errors import version_not_found
from skylog.registry.parsing import gather, parse_source
from skylog.registry.rest.call import Call
from skylog.registry.rest.routing import Route, reading
from skylog.registry.schemas import find_conflicts, in_parser


async def check_version(call: Call) -> Any:
    """Check against one version. A subject without versions is compatible with everything, as its latest."""
    subject, version = call.subject(), call.version()
    earlier = call.state.version(subject, version)
    if earlier is None and version is not None:
        raise version_not_found(version)
    given = call.schema()
    if earlier is None:
        await in_parser(parse_source, gather(call.state, subject, given.kind, given.text, given.references))
        return _verdict(call, [])
    return _verdict(call, await find_conflicts(call.state, subject, given, earlier))


async def check_subject(call: Call) -> Any:
    """Check against all versions that the level of the subject requires."""
    subject, given = call.subject(), call.schema()
    await in_parser(parse_source, gather(call.state, subject, given.kind, given.text, given.references))
    return _verdict(call, await find_conflicts(call.state, subject, given))


def _verdict(call: Call, problems: list[str]) -> dict[str, Any]:
    return {"is_compatible": not problems} | ({"messages": problems} if call.flag("verbose") else {})


ROUTES: Final[tuple[Route, ...]] = (
    reading("POST", "/compatibility/subjects/{subject}/versions", check_subject),
    reading("POST", "/compatibility/subjects/{subject}/versions/{version}", check_version),
)
