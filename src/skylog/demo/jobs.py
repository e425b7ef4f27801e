"""The jobs of the demo: they read the topic of events and write to the demo's directory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from threading import Event
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from skylog.demo.layout import EVENTS, PAGES_TOPIC, RISING, SEARCH, Layout

# Only the jobs import Spark, when they run.
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from skylog.pipeline.runner import IncrementalJob, Progress
    from skylog.pipeline.schedule import Schedule
    from skylog.pipeline.status_publisher import StatusPublisher

logger = logging.getLogger("skylog.demo")

_EVERY_S: Final = 2.0
"""The pause between two batches leaves CPU time to the website."""
_PERIOD_MS: Final = (3_600_000, 20_000, 5_000)  # for `rising`; over a whole day no page would rise within a minute
_TOP: Final = 20


class JobContext(NamedTuple):
    """The arguments of a job. When `stop` is set, the job finishes the current batch and returns."""

    spark: SparkSession
    bootstrap: str
    layout: Layout
    stop: Event
    status: StatusPublisher

    def report(self, progress: Progress) -> None:
        logger.info("%s: batch %d: %d records", progress.job, progress.batch, progress.records)
        self.status.report(progress)

    def schedule(self) -> Schedule:
        from skylog.pipeline.status_publisher import ReportedSchedule

        return ReportedSchedule(_EVERY_S, self.status.waiting)


Job = Callable[[JobContext], None]


def _land(context: JobContext) -> None:
    from skylog.pipeline.jobs.land import LandSettings, land

    land(
        context.spark,
        context.bootstrap,
        [EVENTS],
        LandSettings(context.layout.warehouse),
        schedule=context.schedule(),
        stop=context.stop,
        report=context.report,
    )


def _visits(context: JobContext) -> None:
    from skylog.pipeline.jobs.visits import Visits, open_store

    with closing(open_store(f"sqlite:///{quote(str(context.layout.visits))}", "visits")) as store:
        _run(Visits(store, [EVENTS]), context)


def _rising(context: JobContext) -> None:
    from skylog.pipeline.jobs.rising import RankingPeriod, Rising
    from skylog.pipeline.jobs.rising.job import RankingPublisher

    period = RankingPeriod(*_PERIOD_MS)
    with RankingPublisher(context.bootstrap, RISING) as publisher:
        job = Rising(context.spark, context.layout.rising, [EVENTS], period=period, top=_TOP, publisher=publisher)
        _run(job, context)


def _search(context: JobContext) -> None:
    from skylog.pipeline import Cluster
    from skylog.pipeline.job_definition import JobRun
    from skylog.pipeline.jobs.search import SearchIndex, search_job

    job = search_job([PAGES_TOPIC], SearchIndex(context.layout.search))
    run = JobRun(context.schedule(), context.stop, context.report, SEARCH)
    job.run_with(context.spark, Cluster(context.bootstrap), run)


def _run(job: IncrementalJob, context: JobContext) -> None:
    from skylog.pipeline.increments import Increments
    from skylog.pipeline.runner import run_increments

    increments = Increments(context.bootstrap, [EVENTS], group=job.name)
    run_increments(job, increments, context.spark, context.schedule(), context.stop, context.report)


JOBS: Final[Mapping[str, Job]] = {
    "land": _land,
    "visits": _visits,
    "rising": _rising,
    SEARCH: _search,
}
