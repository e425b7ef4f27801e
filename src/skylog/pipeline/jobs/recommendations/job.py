"""The job: an increment's counts are added to those of the table, and the ranking follows, all in one commit.

A visit goes on from increment to increment, so views need those before them. They are in the log: the job reads it
again from a visit's length before its new views. It keeps no other state than the table.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from skylog.pipeline.cluster import Cluster
from skylog.pipeline.event_parser import events as parsed
from skylog.pipeline.job_definition import Job
from skylog.pipeline.jobs.recommendations.counting import PAGE, VIEW, VISITOR, WITHIN_MS, page_views, seen_together
from skylog.pipeline.jobs.recommendations.ranking import LEAST, TOP, merged, recommend
from skylog.pipeline.table import Table
from skylog.spark.source import FORMAT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def recommendations_job(
    cluster: Cluster | str,
    topics: Sequence[str],
    path: str | os.PathLike[str],
    *,
    event: str = VIEW,
    page: str = PAGE,
    visitor: str = VISITOR,
    within_ms: int = WITHIN_MS,
    top: int = TOP,
    least: int = LEAST,
) -> Job:
    """Return the job that keeps the table at `path` up to date. A visitor's views must be in one partition."""
    table = Table(path, key=("page",))

    def recommendations(events: DataFrame) -> DataFrame:
        views = page_views(events, event, page, visitor).localCheckpoint()
        before = _events_before(Cluster.of(cluster), views, within_ms)
        earlier = None if before is None else page_views(before, event, page, visitor)
        known = table.read(views.sparkSession) if table.exists() else None
        counts = merged(seen_together(views, earlier, within_ms), known)
        return recommend(counts.localCheckpoint(), top, least)  # the ranking reads the counts several times

    return Job(recommendations, topics, table)


def _events_before(cluster: Cluster, views: DataFrame, within_ms: int) -> DataFrame | None:
    """Return the events of the log before the new views that may belong to the same visits. None if there are none."""
    firsts = views.groupBy("topic", "partition").agg(F.min("time_ms").alias("time_ms"), F.min("offset").alias("offset"))
    assign: dict[str, list[int]] = {}
    times: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for row in firsts.collect():
        assign.setdefault(row.topic, []).append(row.partition)
        times.setdefault(row.topic, {})[str(row.partition)] = max(row.time_ms - within_ms, 0)
        ends.setdefault(row.topic, {})[str(row.partition)] = row.offset
    if not assign:
        return None
    ranges: dict[str, Any] = {"assign": assign, "startingOffsetsByTimestamp": times, "endingOffsets": ends}
    options = {**cluster.source_options, **{name: json.dumps(value) for name, value in ranges.items()}}
    return parsed(views.sparkSession.read.format(FORMAT).options(**options).load())
