"""The jobs as the demonstration runs them: on the topic of events, into the demonstration's directory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from threading import Event
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from skylog.cli.demo.places import EVENTS, RISING, Places

# Spark is imported by the jobs themselves: the rest of the demonstration does without.
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from skylog.spark.jobs.runner import IncrementalJob, Progress
    from skylog.spark.jobs.schedule import Schedule
    from skylog.spark.jobs.status_publisher import StatusPublisher

logger = logging.getLogger("skylog.demo")

_EVERY_S: Final = 2.0
"""Time is left to the website between two batches."""
_PERIOD_MS: Final = (3_600_000, 20_000, 5_000)  # of `rising`: a day would not see anything rise in a minute
_TOP: Final = 20


class Surroundings(NamedTuple):
    """What a job is given. It runs until `stop` is set, and lets the batch at hand be finished then."""

    spark: SparkSession
    bootstrap: str
    places: Places
    stop: Event
    status: StatusPublisher

    def report(self, progress: Progress) -> None:
        logger.info("%s: batch %d: %d records", progress.job, progress.batch, progress.records)
        self.status.report(progress)

    def schedule(self) -> Schedule:
        from skylog.spark.jobs.status_publisher import ReportedSchedule

        return ReportedSchedule(_EVERY_S, self.status.waiting)


Job = Callable[[Surroundings], None]


def _land(given: Surroundings) -> None:
    from skylog.spark.jobs.land import LandSettings, land

    land(
        given.spark,
        given.bootstrap,
        [EVENTS],
        LandSettings(given.places.warehouse),
        schedule=given.schedule(),
        stop=given.stop,
        report=given.report,
    )


def _visits(given: Surroundings) -> None:
    from skylog.spark.jobs.visits import Visits, open_store

    with closing(open_store(f"sqlite:///{quote(str(given.places.visits))}")) as store:
        _run(Visits(store, [EVENTS]), given)


def _rising(given: Surroundings) -> None:
    from skylog.spark.jobs.rising import Period, Rising
    from skylog.spark.jobs.rising.job import RankingPublisher
    from skylog.spark.jobs.versioned_table import VersionedTable

    with VersionedTable(given.places.rising) as table, RankingPublisher(given.bootstrap, RISING) as publisher:
        _run(Rising(table, period=Period(*_PERIOD_MS), top=_TOP, publisher=publisher), given)


def _run(job: IncrementalJob, given: Surroundings) -> None:
    from skylog.spark.jobs.increments import Increments
    from skylog.spark.jobs.runner import run_increments

    increments = Increments(given.bootstrap, [EVENTS], group=job.name)
    run_increments(job, increments, given.spark, given.schedule(), given.stop, given.report)


JOBS: Final[Mapping[str, Job]] = {"land": _land, "visits": _visits, "rising": _rising}
