"""`/mirrors`: the clusters that this one mirrors, with the lag of each partition."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from starlette.requests import Request

from skylog.client.mirrors import MirrorDescription
from skylog.console.server.page import Page, Route, console_of
from skylog.errors import SkylogError


async def mirrors(request: Request) -> Page:
    problem: str | None = None
    found: list[MirrorDescription] = []
    try:
        found = await console_of(request).cluster.run(lambda clients: clients.mirrors.list_mirrors())
    except SkylogError as error:
        problem = str(error)
    return Page("mirrors.html", "Mirrors", {"problem": problem, "mirrors": [_document(each) for each in found]})


def _document(mirror: MirrorDescription) -> dict[str, Any]:
    return asdict(mirror) | {
        "status": mirror.status,
        "lag": mirror.lag,
        "lag_s": mirror.lag_s,
        "skipped": mirror.skipped,
    }


ROUTES: Final[tuple[Route, ...]] = (("/mirrors", mirrors, ["GET"]),)
