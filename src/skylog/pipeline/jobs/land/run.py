"""Runs the job: opens the tables, processes increments, and merges small files in the background."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from threading import Event
from typing import TYPE_CHECKING, Final

from skylog.pipeline.cluster import Cluster
from skylog.pipeline.delta.errors import TableError
from skylog.pipeline.delta.storage import Storage
from skylog.pipeline.increments import Increments
from skylog.pipeline.jobs.land.job import NAME, LandSettings, LandSteps
from skylog.pipeline.jobs.land.reports import AuditReporter
from skylog.pipeline.jobs.land.transform import PARTITIONED_BY
from skylog.pipeline.jobs.land.upkeep import Upkeep, keeping_up
from skylog.pipeline.runnable import JobRun, RunnableJob
from skylog.pipeline.runner import ProgressCallback, run_increments
from skylog.pipeline.schedule import ONCE, Schedule
from skylog.pipeline.table import UNPARSED, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MAX_OFFSETS: Final = 2_000_000
_IGNORED: Final = ("_", ".")
_TASK_BYTES: Final = 64 << 20  # the input of one writing task, so that several tasks write a large hour


class Land(RunnableJob):
    """The job: loads topics into tables of the same names, from the end of the tables."""

    def __init__(self, topics: Sequence[str], settings: LandSettings) -> None:
        super().__init__(NAME, topics, Storage.of(settings.warehouse).uri)
        _check_topics(self.reads)
        self._settings = settings

    def run_with(self, spark: SparkSession, cluster: Cluster, run: JobRun) -> None:
        settings, session = self._settings, _session(spark, self._settings)
        with ExitStack() as stack:
            reporter = stack.enter_context(closing(AuditReporter(cluster))) if settings.is_audited else None
            options = {**settings.source_options, **run.options}
            limit, group = run.max_offsets, run.group
            increments = Increments(cluster, self.reads, max_offsets=limit, group=group, options=options)
            steps = LandSteps(session, settings, increments, self.reads, reporter)
            if settings.upkeep is not None:
                upkeep = Upkeep(tables(settings, self.reads), settings.upkeep)
                every_s = None if run.schedule.every_s is None else settings.upkeep.every_s
                stack.enter_context(keeping_up(upkeep, every_s, run.stop))
            run_increments(steps, increments, session, run.schedule, run.stop, run.report)


def land(
    spark: SparkSession,
    cluster: Cluster | str,
    topics: Sequence[str],
    settings: LandSettings,
    *,
    schedule: Schedule = ONCE,
    stop: Event | None = None,
    report: ProgressCallback = lambda _: None,
    group: str | None = NAME,
    max_offsets: int | None = DEFAULT_MAX_OFFSETS,
    options: Mapping[str, str] | None = None,
) -> None:
    """Load topics into tables of the same names, from the end of the tables, once or continuously.

        land(spark, "127.0.0.1:9092", ["page_views"], LandSettings("warehouse"))

    `options` are those of the data source, such as failOnDataLoss. The progress is committed to `group`. Raises
    TableError, SchemaError, JobError, and the errors of the data source.
    """
    run = JobRun(schedule, stop or Event(), report, group, max_offsets, options or {})
    Land(topics, settings).run_with(spark, Cluster.of(cluster), run)


def matching_topics(cluster: Cluster, pattern: str) -> list[str]:
    """Return the topics whose whole name matches a regular expression, without those that cannot be landed.

    Raises TableError if there are none.
    """
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise TableError(f"{pattern}: not a regular expression: {error}") from None
    names = sorted(topic.name for topic in cluster.admin().list_topics() if expression.fullmatch(topic.name))
    found = [name for name in names if not name.startswith(_IGNORED) and not name.endswith(UNPARSED)]
    if not found:
        raise TableError(f"no topic of the cluster matches {pattern}; see: skylog topics list")
    return found


def tables(settings: LandSettings, topics: Sequence[str]) -> list[Table]:
    """Return the tables of topics: of their events, and of their unparsed records."""
    warehouse = Storage.of(settings.warehouse)
    names = [name for topic in topics for name in (topic, topic + UNPARSED)]
    return [
        Table(warehouse.child(name).uri, partition_by=PARTITIONED_BY, file_bytes=settings.file_size_bytes)
        for name in names
    ]


def _check_topics(topics: Sequence[str]) -> None:
    for topic in topics:
        if topic.startswith(_IGNORED):
            raise TableError(f"cannot land topic '{topic}': readers ignore directories whose names begin with _ or .")
        if topic.endswith(UNPARSED):
            raise TableError(f"cannot land topic '{topic}': {UNPARSED} is the suffix of tables for bad records")


def _session(spark: SparkSession, settings: LandSettings) -> SparkSession:
    """Return a session with separate settings, in the same Spark application."""
    session = spark.newSession()
    session.conf.set("spark.sql.adaptive.advisoryPartitionSizeInBytes", str(min(settings.file_size_bytes, _TASK_BYTES)))
    return session
