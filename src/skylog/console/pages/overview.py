"""`/`: whether anything is lost, late or stuck, and how much passes through."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request

from skylog.console.page import Page, Route, console_of

_PLOTTED_APIS: Final = 6


async def overview(request: Request) -> Page:
    console = console_of(request)
    await console.watch.first_look()
    look, history = console.watch.latest, console.watch.history
    document: dict[str, Any] = {
        "topics": len(look.topics),
    }
    return Page("overview.html", "Overview", document)


ROUTES: Final[tuple[Route, ...]] = (("/", overview, ["GET"]),)
