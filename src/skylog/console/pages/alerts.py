"""`/alerts`: what the monitoring job has raised and cleared."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any, Final

from starlette.requests import Request

from skylog.alert import AlertState
from skylog.console.server.page import Page, Route, console_of

_CLEARED_FOR_MS: Final = 24 * 3_600_000


async def alerts(request: Request) -> Page:
    reader = console_of(request).alerts
    found, now_ms = await reader.alerts(), time.time_ns() // 1_000_000
    shown = [each for each in found if each.state is AlertState.RAISED or now_ms - each.at_ms < _CLEARED_FOR_MS]
    document: dict[str, Any] = {
        "exists": reader.topic.exists,
        "problem": reader.topic.problem,
        "as_of_ms": now_ms,
        "raised": sum(each.state is AlertState.RAISED for each in shown),
        "alerts": [asdict(each) for each in shown],
    }
    return Page("alerts.html", "Alerts", document)


ROUTES: Final[tuple[Route, ...]] = (("/alerts", alerts, ["GET"]),)
