"""The jobs of the demo: they read the website's topics and write to the demo's directory."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from skylog.demo.layout import EVENTS, FEED, PAGES_TOPIC, RISING, Layout
from skylog.pipeline.cluster import Cluster
from skylog.pipeline.job_definition import Job
from skylog.pipeline.runnable import JobRun, RunnableJob
from skylog.pipeline.runner import Progress
from skylog.pipeline.status_publisher import ReportedSchedule

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("skylog.demo")

_EVERY_S: Final = 2.0
"""The pause between two batches leaves CPU time to the website."""
_STREAM_EVERY_S: Final = 5.0
"""Streams cost more for a batch, however few events it has."""
_STREAMS_AFTER_S: Final = 10.0
"""Streams start this long after the first results of all other jobs, which are then seen sooner."""
_POLL_S: Final = 0.5
_PERIOD_MS: Final = (3_600_000, 20_000, 5_000)  # for `rising`; over a whole day no page would rise within a minute
_TOP: Final = 20
_MINUTE_MS: Final = 60_000
_FAILURES: Final = 5


@dataclass(frozen=True)
class _StreamSchedule(ReportedSchedule):
    """A stream that does not end, with a pause between its batches."""

    every_s: float | None = 0.0

    @property
    def trigger(self) -> dict[str, Any]:
        return {"processingTime": f"{_STREAM_EVERY_S} seconds"}


def demo_jobs(cluster: Cluster, layout: Layout) -> Sequence[RunnableJob]:
    """Return the jobs."""
    from skylog.pipeline import Topic
    from skylog.pipeline.jobs.feed import feed_job
    from skylog.pipeline.jobs.land import Land, LandSettings
    from skylog.pipeline.jobs.rising import RankingPeriod, rising_job
    from skylog.pipeline.jobs.search import SearchIndex, search_job
    from skylog.pipeline.jobs.security import LoginWindows, security_job
    from skylog.pipeline.jobs.visits import visits_job

    period = RankingPeriod(*_PERIOD_MS)
    windows = LoginWindows(_FAILURES, _MINUTE_MS, _MINUTE_MS)
    return (
        Land([EVENTS], LandSettings(layout.warehouse)),
        visits_job([EVENTS], f"sqlite:///{quote(str(layout.visits))}"),
        rising_job([EVENTS], layout.rising, cluster=cluster, into=RISING, period=period, top=_TOP),
        search_job([PAGES_TOPIC], SearchIndex(layout.search)),
        feed_job([EVENTS], Topic(FEED)),
        security_job([EVENTS], f"sqlite:///{quote(str(layout.security))}", windows=windows),
    )


class DemoJobs:
    """Runs the jobs, each in a thread of the caller, until `stop` is set. They finish their current batches."""

    def __init__(self, spark: SparkSession, cluster: Cluster, layout: Layout, stop: Event) -> None:
        self.jobs = demo_jobs(cluster, layout)
        self._spark, self._cluster, self._layout, self._stop = spark, cluster, layout, stop
        self._without_result = {job.name for job in self.jobs if not _is_stream(job)}

    def run(self, job: RunnableJob) -> None:
        if _is_stream(job) and self._is_stopped_early():
            return
        with job.status(self._cluster) as status:

            def report(progress: Progress) -> None:
                logger.info("%s: batch %d: %d records", progress.job, progress.batch, progress.records)
                self._without_result.discard(job.name)
                status.report(progress)

            is_stream, tell = _is_stream(job), status.waiting
            schedule = _StreamSchedule(0.0, tell) if is_stream else ReportedSchedule(_EVERY_S, tell)
            run = JobRun(schedule, self._stop, report, job.name, state=self._layout.state / job.name)
            job.run_with(self._spark, self._cluster, run)

    def _is_stopped_early(self) -> bool:
        """Wait until streams may start. Return whether the demo is stopped before."""
        while self._without_result:
            if self._stop.wait(_POLL_S):
                return True
        return self._stop.wait(_STREAMS_AFTER_S)


def _is_stream(job: RunnableJob) -> bool:
    return isinstance(job, Job) and job.is_stream
