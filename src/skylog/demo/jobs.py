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
"""Streams start later, so that the first results of the other jobs are seen sooner."""
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


def run_demo_job(job: RunnableJob, spark: SparkSession, cluster: Cluster, layout: Layout, stop: Event) -> None:
    """Run a job until `stop` is set. It finishes its current batch."""
    is_stream = getattr(job, "is_stream", False)
    if is_stream and stop.wait(_STREAMS_AFTER_S):
        return
    with job.status(cluster) as status:

        def report(progress: Progress) -> None:
            logger.info("%s: batch %d: %d records", progress.job, progress.batch, progress.records)
            status.report(progress)

        schedule = _StreamSchedule(0.0, status.waiting) if is_stream else ReportedSchedule(_EVERY_S, status.waiting)
        run = JobRun(schedule, stop, report, job.name, state=layout.state / job.name)
        job.run_with(spark, cluster, run)
