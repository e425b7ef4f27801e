"""Ranks pages by how far their recent views exceed the views expected from the time before.

Event time is divided into buckets, and "now" is the time of the newest event. The period ends with the bucket of now.
Its last part is recent; the rest gives the expectation:

    |<------------------- period ------------------->|
    |<------ before ------>|<-------- recent ------->|
    [bucket][bucket] ...   [bucket] ...     [bucket now ]

    expected = views before / length before * length of recent until now
    score    = (views - expected) / sqrt(expected + smoothing)

The score is the number of standard deviations above the expectation. Smoothing lowers the score of pages with few
views. If the first bucket is after the start of the period, the length before begins with that bucket.

Bucket counts can be added in any order. So a late event counts like one that arrived in time, until its bucket has left
the period, and counting in increments gives the same ranking as counting at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from skylog.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

HOUR_MS: Final = 3_600_000
PAGE: Final = "coalesce(attributes.page, attributes.path)"
VIEW: Final = "page.view"
TOP: Final = 100
SMOOTHING: Final = 1.0


@dataclass(frozen=True)
class RankingPeriod:
    """The period of a ranking and its buckets. The default is 24 hours, the last one recent, in 10-minute buckets."""

    length_ms: int = 24 * HOUR_MS
    recent_ms: int = HOUR_MS
    bucket_ms: int = HOUR_MS // 6

    def __post_init__(self) -> None:
        if not 0 < self.bucket_ms <= self.recent_ms < self.length_ms:
            raise ConfigError(
                f"period {self.length_ms} ms, recent {self.recent_ms} ms, bucket {self.bucket_ms} ms: the recent part "
                "must be shorter than the period, and a bucket must not be longer than the recent part"
            )
        if self.recent_ms % self.bucket_ms or self.length_ms % self.bucket_ms:
            raise ConfigError(
                f"the period ({self.length_ms} ms) and its recent part ({self.recent_ms} ms) must be multiples of the "
                f"bucket ({self.bucket_ms} ms)"
            )

    def bucket_of(self, time_ms: Column) -> Column:
        return time_ms - time_ms % self.bucket_ms

    def start_of(self, now_ms: int) -> int:
        """Return the first bucket of the period that ends with the bucket of `now_ms`."""
        return now_ms - now_ms % self.bucket_ms + self.bucket_ms - self.length_ms


def page_views(events: DataFrame, page: str = PAGE, event: str = VIEW) -> DataFrame:
    """Return (page, timestamp) of the events that are views. `page` is the SQL expression of the page in an event."""
    views = events.where(F.col("event") == event)
    return views.select(F.expr(page).cast("string").alias("page"), "record.timestamp").where("page IS NOT NULL")


def bucket_counts(views: DataFrame, period: RankingPeriod) -> DataFrame:
    """Aggregate (page, timestamp) to (page, bucket_ms, views, newest_ms)."""
    time_ms = F.unix_millis("timestamp")
    counted = views.select("page", period.bucket_of(time_ms).alias("bucket_ms"), time_ms.alias("time_ms"))
    return counted.groupBy("page", "bucket_ms").agg(F.count("*").alias("views"), F.max("time_ms").alias("newest_ms"))


def merge_counts(one: DataFrame, other: DataFrame, *, is_one_task: bool = False) -> DataFrame:
    """Add two sets of counts. With `is_one_task`, one task does everything: for a few counts."""
    both = one.unionByName(other)
    return (
        (both.coalesce(1) if is_one_task else both)
        .groupBy("page", "bucket_ms")
        .agg(F.sum("views").alias("views"), F.max("newest_ms").alias("newest_ms"))
    )


def ranking(counts: DataFrame, period: RankingPeriod, top: int = TOP, smoothing: float = SMOOTHING) -> DataFrame:
    """Return the `top` rising pages: rank, page, score, views, expected, total (of the period) and window_end."""
    bucket, now = F.col("bucket_ms"), F.col("now_ms")
    end = period.bucket_of(now) + period.bucket_ms
    start, recent = end - period.length_ms, end - period.recent_ms
    inside = counts.crossJoin(F.broadcast(counts.agg(F.max("newest_ms").alias("now_ms")))).where(bucket >= start)
    known = F.broadcast(inside.agg(F.min(bucket).alias("first_ms")))
    before_ms = F.greatest(recent - F.col("first_ms"), F.lit(0))
    by_page = (
        inside.withColumn("is_recent", bucket >= recent)
        .groupBy("page", "now_ms")
        .agg(
            F.sum(F.when(F.col("is_recent"), F.col("views")).otherwise(0)).alias("views"),
            F.sum(F.when(~F.col("is_recent"), F.col("views")).otherwise(0)).alias("before"),
        )
        .crossJoin(known)
    )
    expected = F.when(before_ms > 0, F.col("before") * (now - recent) / before_ms).otherwise(F.lit(0.0))
    scored = by_page.withColumn("expected", expected).withColumn(
        "score", (F.col("views") - F.col("expected")) / F.sqrt(F.col("expected") + F.lit(smoothing))
    )
    order = [F.desc("score"), F.desc("views"), F.asc("page")]
    return (
        scored.where("views > expected")
        .orderBy(*order)
        .limit(top)
        .select(
            F.row_number().over(Window.orderBy(*order)).alias("rank"),
            "page",
            "score",
            "views",
            "expected",
            (F.col("views") + F.col("before")).alias("total"),
            F.timestamp_millis(now).alias("window_end"),
        )
    )


def rising(
    views: DataFrame, period: RankingPeriod | None = None, top: int = TOP, smoothing: float = SMOOTHING
) -> DataFrame:
    """Rank all `views` (page, timestamp) at once. The job computes the same ranking from increments."""
    period = period or RankingPeriod()
    return ranking(bucket_counts(views, period), period, top, smoothing)
