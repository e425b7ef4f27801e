"""Counts the pages that a visitor has seen together: within a time of each other. Independent of offsets and tables.

A view counts a pair with each other page of the visitor's views before it in the partition, at most `WITHIN` away in
event time. If one of them was of the same page, the view counts nothing: a visitor who reloads a page, or goes back to
it, counts once. So the counts depend only on the log, not on how it is cut into batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VIEW: Final = "page.view"
PAGE: Final = "coalesce(attributes.page, attributes.path)"
VISITOR: Final = "coalesce(attributes.session, user.id)"
WITHIN_MS: Final = 1_800_000
MOST_VIEWS: Final = 100
"""A view is compared with this many views of the visitor before it, so that a robot does not cost its square."""


def page_views(events: DataFrame, event: str = VIEW, page: str = PAGE, visitor: str = VISITOR) -> DataFrame:
    """Return page and visitor of each view, its time, and its place in the log."""
    views = events.where(F.col("event") == event).select(
        F.expr(page).cast("string").alias("page"),
        F.expr(visitor).cast("string").alias("visitor"),
        F.unix_millis("timestamp").alias("time_ms"),
        "topic",
        "partition",
        "offset",
    )
    return views.where("page IS NOT NULL AND visitor IS NOT NULL")


def seen_together(views: DataFrame, earlier: DataFrame | None = None, within_ms: int = WITHIN_MS) -> DataFrame:
    """Return page, other and together, for pairs that `views` complete: in both directions, with the number of visits.

    A row without other has the number of visits of the page. `earlier` are the views before them in the log.
    """
    every = views.withColumn("is_new", F.lit(True))
    if earlier is not None:
        every = every.unionByName(earlier.withColumn("is_new", F.lit(False)))
    before = Window.partitionBy("topic", "partition", "visitor").orderBy("offset").rowsBetween(-MOST_VIEWS, -1)
    recent = every.withColumn("recent", F.collect_list(F.struct("page", "time_ms")).over(before)).where("is_new")
    near = f"filter(recent, each -> abs(each.time_ms - time_ms) <= {within_ms})"
    visits = recent.selectExpr("page", f"array_distinct(transform({near}, each -> each.page)) AS others")
    visits = visits.where("NOT array_contains(others, page)")
    pairs = visits.select("page", F.explode("others").alias("other"))
    found = pairs.union(pairs.select("other", "page")).union(visits.selectExpr("page", "CAST(NULL AS STRING)"))
    return found.groupBy("page", "other").agg(F.count("*").alias("together"))
