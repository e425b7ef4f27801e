"""The digests: the pages of a day in the sections that a user has subscribed to, when the day is over.

    pages    a changelog of pages: the key is the page, the value {"title", "section", "text"}
    users    a changelog of users: the key is the user, the value {"address", "name", "sections"}

A day is a UTC day of the pages' timestamps. Spark keeps the pages of open days in its state, and closes a day when it
has seen a record from later than the day's end and the grace. Each digest is written once: a record with the user as
key. Pages that arrive after their day was closed are in no digest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from skylog.pipeline.cluster import Cluster
from skylog.pipeline.event_parser import all_fields
from skylog.pipeline.job_definition import Job
from skylog.pipeline.jobs.materialize import changes, materialize
from skylog.pipeline.topic import Topic
from skylog.spark.source import FORMAT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from skylog.pipeline.runnable import JobRun

PAGE: Final = "title STRING, section STRING, text STRING"
USER: Final = "address STRING, name STRING, sections ARRAY<STRING>"
GRACE: Final = "1 hour"
INTO: Final = "newsletters"
_ROUND_S: Final = 60.0
_EXCERPT: Final = 300  # characters
_LAST: Final = "filter(items, each -> NOT exists(items, other -> other.page = each.page AND other.at > each.at))"
_KEPT: Final = f"filter({_LAST}, each -> each.title IS NOT NULL)"
_OWN: Final = "filter(items, each -> array_contains(sections, each.section) OR array_contains(sections, '*'))"
_PLAIN: Final = "transform(own, each -> struct(each.page, each.title, each.section, each.text))"


def digests(records: DataFrame, users: DataFrame, pages: str, grace: str = GRACE) -> DataFrame:
    """Return key and value of a digest for each user and closed day. `records` are those of the topic `pages`.

    They may have records of other topics, which only show that time passes. `users` has the columns of USER and `user`.
    """
    fields = all_fields(records, PAGE).selectExpr("record.*", "title", "section", "text")
    item = F.struct(
        F.struct("timestamp", "offset").alias("at"),
        F.col("key").cast("string").alias("page"),
        "title",
        "section",
        F.substring("text", 1, _EXCERPT).alias("text"),
    )
    is_page = (F.col("topic") == pages) & F.col("key").isNotNull()
    days = fields.withWatermark("timestamp", grace).groupBy(F.window("timestamp", "1 day"))
    issues = days.agg(F.sort_array(F.collect_list(F.when(is_page, item))).alias("items"))
    day = F.date_from_unix_date((F.unix_seconds("window.start") / 86_400).cast("int")).cast("string")
    news = issues.select(day.alias("day"), F.expr(_KEPT).alias("items"))
    found = news.crossJoin(users).withColumn("own", F.expr(_OWN)).where("size(own) > 0")
    return found.selectExpr("user AS key", "user", "address", "name", "day", f"{_PLAIN} AS pages")


def subscribers(records: DataFrame) -> DataFrame:
    """Return the current users with an address and at least one section, from the records of their changelog."""
    users = materialize(changes(records, USER)).withColumn("user", F.col("_key").cast("string"))
    return users.select("user", "address", "name", "sections").where("address IS NOT NULL AND size(sections) > 0")


def newsletters_job(
    cluster: Cluster | str,
    pages: str,
    users: str,
    into: Topic | None = None,
    *,
    grace: str = GRACE,
    clocks: Sequence[str] = (),
) -> Job:
    """Return the job. `clocks` are further topics whose records show that time passes, so that days are closed.

    All users are read when a day is closed, whatever the options of the cluster say about the reads of pages.
    """
    options = {**Cluster.of(cluster).kafka_options, "subscribe": users}

    def newsletters(records: DataFrame) -> DataFrame:
        current = subscribers(records.sparkSession.read.format(FORMAT).options(**options).load())
        return digests(records, current, pages, grace)

    return _NewslettersJob(newsletters, (pages, *clocks), into or Topic(INTO), schema=None)


class _NewslettersJob(Job):
    """Reads the users at the start of each round, so it always runs in rounds.

    In an endless query Spark would keep the users of the first batch.
    """

    def run_with(self, spark: SparkSession, cluster: Cluster, run: JobRun) -> None:
        if not run.schedule.has_rounds:
            run = replace(run, schedule=replace(run.schedule, every_s=_ROUND_S))
        super().run_with(spark, cluster, run)
