"""`/pipelines`: the jobs that run on Spark, how far they are, and what went wrong."""

from __future__ import annotations

import time
from typing import Any, Final

from starlette.requests import Request

from skylog.console.fields import query
from skylog.console.jobs_watch import SILENT, Job, is_old
from skylog.console.page import Page, Route, console_of
from skylog.job_status import JobState

_ORDER: Final = (JobState.FAILED.value, SILENT, JobState.RUNNING.value, JobState.WAITING.value, JobState.STOPPED.value)
_PLOTTED: Final = 6


async def pipelines(request: Request) -> Page:
    watch = console_of(request).jobs
    is_all = query(request).has("all")
    jobs, now_ms = await watch.jobs(), time.time_ns() // 1_000_000
    shown = [job for job in jobs if is_all or not is_old(job, now_ms)]
    shown.sort(key=lambda job: (_ORDER.index(job.state(now_ms)), job.status.name))
    alive = sorted((job for job in shown if job.status.is_alive), key=lambda job: -(job.status.lag or 0))[:_PLOTTED]
    document: dict[str, Any] = {
        "exists": watch.exists,
        "as_of_ms": now_ms,
        "problem": watch.problem,
        "all": is_all,
        "hidden": len(jobs) - len(shown),
        "jobs": [_document(job, now_ms) for job in shown],
        "lag_history": {job.status.name: job.lag_points() for job in alive},
        "rate_history": {job.status.name: job.rate_points() for job in alive},
    }
    return Page("pipelines.html", "Pipelines", document)


def _document(job: Job, now_ms: int) -> dict[str, Any]:
    return {**job.document(now_ms), "told": job.problem(now_ms)}


ROUTES: Final[tuple[Route, ...]] = (("/pipelines", pipelines, ["GET"]),)
