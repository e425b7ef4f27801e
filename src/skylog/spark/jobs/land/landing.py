"""Runs the job: opens the tables, reads increments, merges beside it, and closes everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from threading import Event
from typing import TYPE_CHECKING, Final

from skylog.model import check_topic_name
from skylog.spark.jobs.directories import check_directory
from skylog.spark.jobs.increments import Increments
from skylog.spark.jobs.land.errors import TableError
from skylog.spark.jobs.land.job import NAME, Land, LandSettings
from skylog.spark.jobs.land.merge import Merger, merging
from skylog.spark.jobs.land.reports import LandedReports
from skylog.spark.jobs.land.table import Table
from skylog.spark.jobs.land.transform import event_schema, events_frame
from skylog.spark.jobs.land.visible import UNPARSED_SUFFIX
from skylog.spark.jobs.runner import Report, run_increments
from skylog.spark.jobs.schedule import ONCE, Schedule
from skylog.spark.reading.options import BOOTSTRAP, KAFKA_PREFIX
from skylog.spark.schema import record_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

DEFAULT_MAX_OFFSETS: Final = 2_000_000
_TASK_BYTES: Final = 64 << 20  # on their way to one task that writes: a large hour is written by several at once


def land(
    spark: SparkSession,
    bootstrap: str,
    topics: Sequence[str],
    settings: LandSettings,
    *,
    schedule: Schedule = ONCE,
    stop: Event | None = None,
    report: Report = lambda _: None,
    group: str | None = NAME,
    max_offsets: int | None = DEFAULT_MAX_OFFSETS,
    options: Mapping[str, str] | None = None,
) -> None:
    """Land topics in tables of the same names, from where the tables end: once, or on and on.

        land(spark, "127.0.0.1:9092", ["page_views"], LandSettings(Path("warehouse")))

    `options` are those of the data source, such as kafka.security.protocol; `group` is told of the progress. Raises
    TableError, DirectoryError, LostRowsError, JobError, and what the data source raises.
    """
    _check_topics(topics)
    check_directory(settings.warehouse)
    stop = stop or Event()
    options = options or {}
    session = _session(spark, settings)
    schema = _schema(session, settings)
    kafka = _kafka(bootstrap, options)
    is_once = schedule.every_s is None
    with ExitStack() as stack:
        tables = {
            topic: stack.enter_context(closing(Table(settings.warehouse / topic, topic)))
            for topic in dict.fromkeys(topics)
        }
        reports = stack.enter_context(closing(LandedReports(bootstrap, kafka))) if settings.is_audited else None
        job = Land(settings, schema, tables, reports)
        increments = Increments(bootstrap, list(tables), max_offsets=max_offsets, group=group, options=options)
        if settings.merge is not None:
            merger = Merger(list(tables.values()), settings.file_size_bytes, settings.merge)
            stack.enter_context(merging(merger, None if is_once else settings.merge.every_s, stop))
        run_increments(job, increments, session, schedule, stop, report)


def _check_topics(topics: Sequence[str]) -> None:
    for topic in topics:
        check_topic_name(topic)
        if topic.startswith(("_", ".")):
            raise TableError(f"topic '{topic}' cannot land: readers take no notice of directories whose names begin so")
        if topic.endswith(UNPARSED_SUFFIX):
            raise TableError(f"topic '{topic}' cannot land: tables of that name hold what does not parse of another")


def _session(spark: SparkSession, settings: LandSettings) -> SparkSession:
    """A session with settings of its own, on the same Spark."""
    session = spark.newSession()
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")  # the only one that all readers know
    session.conf.set("spark.sql.adaptive.advisoryPartitionSizeInBytes", str(min(settings.file_size_bytes, _TASK_BYTES)))
    return session


def _schema(session: SparkSession, settings: LandSettings) -> StructType:
    """Raises TableError for settings that no record could land with."""
    schema = event_schema(settings.schema)
    events_frame(session.createDataFrame([], record_schema(with_headers=False)), schema, settings.event_time)
    return schema


def _kafka(bootstrap: str, options: Mapping[str, str]) -> dict[str, str]:
    given = {**{key.lower(): value for key, value in options.items()}, BOOTSTRAP: bootstrap}
    return {key.removeprefix(KAFKA_PREFIX): value for key, value in given.items() if key.startswith(KAFKA_PREFIX)}
