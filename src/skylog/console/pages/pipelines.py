"""`/pipelines`: the Spark jobs and captures, their progress and their errors."""

from __future__ import annotations

import time
from typing import Any, Final

from starlette.requests import Request

from skylog.console.background.jobs_reader import SILENT, is_old
from skylog.console.server.fields import query
from skylog.console.server.page import Page, Route, console_of

_ORDER: Final = ("failed", "retrying", SILENT, "running", "waiting", "stopped")
_PLOTTED: Final = 6


async def pipelines(request: Request) -> Page:
    reader = console_of(request).jobs
    is_all = query(request).has("all")
    jobs, now_ms = await reader.jobs(), time.time_ns() // 1_000_000
    shown = [job for job in jobs if is_all or not is_old(job, now_ms)]
    shown.sort(key=lambda job: (_ORDER.index(job.state(now_ms)), job.status.name))
    alive = sorted((job for job in shown if job.status.is_alive), key=lambda job: -(job.status.lag or 0))[:_PLOTTED]
    document: dict[str, Any] = {
        "exists": reader.topic.exists,
        "as_of_ms": now_ms,
        "problem": reader.topic.problem,
        "all": is_all,
        "hidden": len(jobs) - len(shown),
        "jobs": [job.document(now_ms) for job in shown],
        "lag_history": {job.status.name: job.lag_points() for job in alive},
        "rate_history": {job.status.name: job.rate_points() for job in alive},
    }
    return Page("pipelines.html", "Pipelines", document)


ROUTES: Final[tuple[Route, ...]] = (("/pipelines", pipelines, ["GET"]),)
