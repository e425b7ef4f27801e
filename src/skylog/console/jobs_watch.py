"""Follows the topic in which jobs tell how they are doing, while somebody looks."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any, Final

from skylog.client import Admin, PartitionReader
from skylog.console import words
from skylog.console.cluster import Cluster
from skylog.console.history import Points
from skylog.console.on_demand import OnDemand
from skylog.errors import SkylogError
from skylog.job_status import JOBS_TOPIC, JobState, JobStatus, JobStatusError
from skylog.model import TopicPartition

INTERVAL_S: Final = 2.0
SILENT: Final = "silent"
SILENT_MS: Final = 30_000
RECENT_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
MAX_JOBS: Final = 500
_MAX_POINTS: Final = 720
_MAX_ROUND_S: Final = 10.0
_QUIET_S: Final = 3.0
_PATIENCE_S: Final = 5.0


class Job:
    """One job over its runs: the latest status, its last error, which outlives a new start, and the last hour."""

    def __init__(self, status: JobStatus) -> None:
        self.status = status
        self.last_error: str | None = None
        self.last_error_at_ms: int | None = None
        self._statuses: deque[JobStatus] = deque(maxlen=_MAX_POINTS)
        self.see(status)

    def see(self, status: JobStatus) -> None:
        self.status = status
        self._statuses.append(status)
        while self._statuses[0].reported_at_ms < status.reported_at_ms - HOUR_MS:
            self._statuses.popleft()
        if status.last_error is not None:
            self.last_error, self.last_error_at_ms = status.last_error, status.reported_at_ms

    def state(self, now_ms: int) -> str:
        """Its own word for it, or silent if it should have said something by now."""
        is_silent = self.status.is_alive and now_ms - self.status.reported_at_ms > SILENT_MS
        return SILENT if is_silent else self.status.state.value

    def records_per_s(self, now_ms: int) -> float | None:
        """Over the last minute, or since it began; None once it has ended."""
        if self.state(now_ms) not in (JobState.RUNNING, JobState.WAITING):
            return None
        since_ms = max(now_ms - RECENT_MS, self.status.started_at_ms)
        before = 0
        for status in self._lately():
            if status.started_at_ms == self.status.started_at_ms and status.reported_at_ms <= since_ms:
                before = status.records_total
        return (self.status.records_total - before) / max((now_ms - since_ms) / 1000, 1.0)

    def lag_points(self) -> Points:
        return [(each.reported_at_ms, float(each.lag)) for each in self._lately() if each.lag is not None]

    def rate_points(self) -> Points:
        """Records per second between one report and the next of the same run."""
        points: Points = []
        for before, after in pairwise(self._lately()):
            seconds = (after.reported_at_ms - before.reported_at_ms) / 1000
            if before.started_at_ms == after.started_at_ms and seconds > 0:
                points.append((after.reported_at_ms, max(after.records_total - before.records_total, 0) / seconds))
        return points

    def _lately(self) -> Sequence[JobStatus]:
        """The statuses of the last hour, apart from those that the reading thread adds meanwhile."""
        return self._statuses.copy()

    def document(self, now_ms: int) -> dict[str, Any]:
        return {
            **asdict(self.status),
            "topics": list(self.status.topics),
            "state": self.state(now_ms),
            "records_per_s": self.records_per_s(now_ms),
            "last_error": self.last_error,
            "last_error_at_ms": self.last_error_at_ms,
        }

    def problem(self, now_ms: int) -> str | None:
        """What is wrong with it now, in a sentence."""
        match self.state(now_ms):
            case JobState.FAILED:
                return f"{self.status.name} failed: {self.status.last_error or 'it did not say why'}"
            case silent if silent == SILENT:
                return f"{self.status.name} has not reported for {words.span(now_ms - self.status.reported_at_ms)}"
        return None


class JobsWatch:
    """The jobs by name. Asked from the event loop, reads in a thread."""

    def __init__(self, cluster: Cluster) -> None:
        self.exists = False
        self._cluster = cluster
        self._jobs: dict[str, Job] = {}
        self._reader: PartitionReader | None = None
        self._reading = OnDemand("skylog-jobs-watch", self._read, INTERVAL_S, self._close_reader)

    @property
    def problem(self) -> str | None:
        return self._reading.problem

    async def jobs(self) -> Sequence[Job]:
        """All that have ever reported, by name, as far as the topic remembers and there are not too many."""
        await self._reading.ask(_PATIENCE_S)
        return [job for _, job in sorted(self._jobs.copy().items())]

    async def summary(self) -> dict[str, Any] | None:
        """How many jobs are in each state and what is wrong with which, of the last day; None if none has reported."""
        jobs, now_ms = await self.jobs(), time.time_ns() // 1_000_000
        lately = [job for job in jobs if not is_old(job, now_ms)]
        if not jobs:
            return None
        return {
            "jobs": dict(Counter(job.state(now_ms) for job in lately)),
            "problems": [problem for job in lately if (problem := job.problem(now_ms))],
        }

    def close(self) -> None:
        self._reading.close()

    def _read(self) -> None:
        """What has come since; all of it at first. A topic that keeps only each job's last status is soon read."""
        reader = self._reader or self._open_reader()
        if reader is None:
            return
        try:
            is_up_to_date = self._read_on(reader)
        except BaseException:
            self._close_reader()  # the topic may have been made anew
            raise
        if not is_up_to_date:
            raise SkylogError(f"topic '{JOBS_TOPIC}' does not answer; what is shown of the jobs is of some time ago")

    def _read_on(self, reader: PartitionReader) -> bool:
        """Whether it was read to its end, or goes on to be read: false where nothing comes though there is more."""
        began = quiet_since = time.monotonic()
        while (now := time.monotonic()) - began < _MAX_ROUND_S:
            messages = reader.read()
            for message in messages:
                self._take(message.value)
            if messages:
                quiet_since = now
            elif reader.at_end == reader.partitions and not reader.lost_s:
                return True
            elif now - quiet_since > _QUIET_S:
                return False
        return True

    def _open_reader(self) -> PartitionReader | None:
        connection = self._cluster.connection()
        topic = next((each for each in Admin(connection).list_topics() if each.name == JOBS_TOPIC), None)
        self.exists = topic is not None
        self._jobs = {}
        if topic is not None:
            starts = {TopicPartition(JOBS_TOPIC, partition.index): 0 for partition in topic.partitions}
            self._reader = PartitionReader(connection, starts)
        return self._reader

    def _take(self, value: bytes | None) -> None:
        try:
            status = JobStatus.decode(value or b"")
        except JobStatusError:
            return  # anybody can write to the topic
        job = self._jobs.get(status.name)
        if job is not None:
            job.see(status)
            return
        self._jobs[status.name] = Job(status)
        if len(self._jobs) > MAX_JOBS:
            del self._jobs[min(self._jobs, key=lambda name: self._jobs[name].status.reported_at_ms)]

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def is_old(job: Job, now_ms: int) -> bool:
    """Whether it ended, or was last heard of, more than a day ago."""
    return now_ms - job.status.reported_at_ms > 24 * HOUR_MS
