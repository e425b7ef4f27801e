"""Runs the job: opens the tables, processes increments, and merges small files in the background."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from threading import Event
from typing import TYPE_CHECKING, Final

from skylog.model import check_topic_name
from skylog.pipeline.cluster import Cluster
from skylog.pipeline.delta.errors import TableError
from skylog.pipeline.delta.storage import Storage
from skylog.pipeline.increments import Increments
from skylog.pipeline.jobs.land.job import NAME, LandJob, LandSettings
from skylog.pipeline.jobs.land.reports import AuditReporter
from skylog.pipeline.jobs.land.transform import PARTITIONED_BY, event_schema
from skylog.pipeline.jobs.land.upkeep import Upkeep, keeping_up
from skylog.pipeline.runner import ProgressCallback, run_increments
from skylog.pipeline.schedule import ONCE, Schedule
from skylog.pipeline.table import UNPARSED, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MAX_OFFSETS: Final = 2_000_000
_TASK_BYTES: Final = 64 << 20  # the input of one writing task, so that several tasks write a large hour


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
    topics = list(dict.fromkeys(topics))
    _check_topics(topics)
    cluster, stop = Cluster.of(cluster), stop or Event()
    session = _session(spark, settings)
    with ExitStack() as stack:
        reporter = stack.enter_context(closing(AuditReporter(cluster))) if settings.is_audited else None
        job = LandJob(session, settings, event_schema(settings.schema), topics, reporter)
        increments = Increments(cluster, topics, max_offsets=max_offsets, group=group, options=options)
        if settings.upkeep is not None:
            upkeep = Upkeep(tables(settings, topics), settings.upkeep)
            every_s = None if schedule.every_s is None else settings.upkeep.every_s
            stack.enter_context(keeping_up(upkeep, every_s, stop))
        run_increments(job, increments, session, schedule, stop, report)


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
        check_topic_name(topic)
        if topic.startswith(("_", ".")):
            raise TableError(f"cannot land topic '{topic}': readers ignore directories whose names begin with _ or .")
        if topic.endswith(UNPARSED):
            raise TableError(f"cannot land topic '{topic}': {UNPARSED} is the suffix of tables for bad records")


def _session(spark: SparkSession, settings: LandSettings) -> SparkSession:
    """Return a session with separate settings, in the same Spark application."""
    session = spark.newSession()
    session.conf.set("spark.sql.adaptive.advisoryPartitionSizeInBytes", str(min(settings.file_size_bytes, _TASK_BYTES)))
    return session
