"""Keeps the status of the Spark jobs, as their topic has it."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any, Final

from skylog.client import Message
from skylog.console.background.topic_reader import TopicReader
from skylog.console.cluster.client_pool import ClientPool
from skylog.console.monitoring.history import Points
from skylog.console.rendering import formatting
from skylog.job_status import JOBS_TOPIC, JobState, JobStatus, JobStatusError

SILENT: Final = "silent"
SILENT_MS: Final = 30_000
RECENT_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
MAX_JOBS: Final = 500
_MAX_POINTS: Final = 720


class Job:
    """One job over all its runs: its latest status, its last error (kept across restarts), and the last hour."""

    def __init__(self, status: JobStatus) -> None:
        self.status = status
        self.last_error: str | None = None
        self.last_error_at_ms: int | None = None
        self._statuses: deque[JobStatus] = deque(maxlen=_MAX_POINTS)
        self.update(status)

    def update(self, status: JobStatus) -> None:
        self.status = status
        self._statuses.append(status)
        while self._statuses[0].reported_at_ms < status.reported_at_ms - HOUR_MS:
            self._statuses.popleft()
        if status.last_error is not None:
            self.last_error, self.last_error_at_ms = status.last_error, status.reported_at_ms

    def state(self, now_ms: int) -> str:
        """Return the reported state, or `silent` if a report is overdue."""
        is_silent = self.status.is_alive and now_ms - self.status.reported_at_ms > SILENT_MS
        return SILENT if is_silent else self.status.state.value

    def records_per_s(self, now_ms: int) -> float | None:
        """Return the rate over the last minute, or since the start; None after the end."""
        if not self.status.is_alive or self.state(now_ms) == SILENT:
            return None
        since_ms = max(now_ms - RECENT_MS, self.status.started_at_ms)
        before = 0
        for status in self._last_hour():
            if status.started_at_ms == self.status.started_at_ms and status.reported_at_ms <= since_ms:
                before = status.records_total
        return (self.status.records_total - before) / max((now_ms - since_ms) / 1000, 1.0)

    def lag_points(self) -> Points:
        return [(each.reported_at_ms, float(each.lag)) for each in self._last_hour() if each.lag is not None]

    def rate_points(self) -> Points:
        """Records per second between consecutive reports of the same run."""
        points: Points = []
        for before, after in pairwise(self._last_hour()):
            seconds = (after.reported_at_ms - before.reported_at_ms) / 1000
            if before.started_at_ms == after.started_at_ms and seconds > 0:
                points.append((after.reported_at_ms, max(after.records_total - before.records_total, 0) / seconds))
        return points

    def _last_hour(self) -> Sequence[JobStatus]:
        """Return a copy of the statuses of the last hour, because the reading thread may add others meanwhile."""
        return self._statuses.copy()

    def document(self, now_ms: int) -> dict[str, Any]:
        return {
            **asdict(self.status),
            "topics": list(self.status.topics),
            "state": self.state(now_ms),
            "records_per_s": self.records_per_s(now_ms),
            "last_error": self.last_error,
            "last_error_at_ms": self.last_error_at_ms,
            "problem": self.problem(now_ms),
        }

    def problem(self, now_ms: int) -> str | None:
        """Return the current problem in one sentence, or None."""
        match self.state(now_ms):
            case JobState.FAILED:
                return f"{self.status.name} failed: {self.status.last_error or 'no reason was reported'}"
            case JobState.RETRYING:
                return f"{self.status.name} fails and tries again: {self.status.last_error or 'no reason was reported'}"
            case silent if silent == SILENT:
                silence = formatting.duration(now_ms - self.status.reported_at_ms)
                return f"{self.status.name} has not reported for {silence}"
        return None


class JobsReader:
    """Keeps the status of all jobs. Call it from the event loop."""

    def __init__(self, cluster: ClientPool) -> None:
        self._jobs: dict[str, Job] = {}
        self.topic = TopicReader(cluster, JOBS_TOPIC, self._add, self._jobs.clear)

    async def jobs(self) -> Sequence[Job]:
        """Return all jobs in the topic, sorted by name. At most MAX_JOBS; the jobs with the latest reports are kept."""
        await self.topic.request()
        return [job for _, job in sorted(self._jobs.copy().items())]

    async def summary(self) -> dict[str, Any] | None:
        """Return the number of jobs of the last day by state, and their problems; None if no job has ever reported."""
        jobs, now_ms = await self.jobs(), time.time_ns() // 1_000_000
        recent = [job for job in jobs if not is_old(job, now_ms)]
        if not jobs:
            return None
        return {
            "jobs": dict(Counter(job.state(now_ms) for job in recent)),
            "problems": [problem for job in recent if (problem := job.problem(now_ms))],
        }

    def _add(self, message: Message) -> None:
        try:
            status = JobStatus.decode(message.value or b"")
        except JobStatusError:
            return  # any client can write to the topic
        job = self._jobs.get(status.name)
        if job is not None:
            job.update(status)
            return
        self._jobs[status.name] = Job(status)
        if len(self._jobs) > MAX_JOBS:
            del self._jobs[min(self._jobs, key=lambda name: self._jobs[name].status.reported_at_ms)]


def is_old(job: Job, now_ms: int) -> bool:
    """Whether the last report is more than a day old."""
    return now_ms - job.status.reported_at_ms > 24 * HOUR_MS
