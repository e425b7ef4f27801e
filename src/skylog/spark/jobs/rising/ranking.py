"""How pages are ranked: by how far their views of late exceed what the time before lets one expect.

Time is that of the events, cut into buckets. Now is the time of the newest event. The period ends with the bucket of
now; its last part is recent, the rest is what expectations come from:

    |<------------------- period ------------------->|
    |<- what one expects ->|<-------- recent ------->|
    [bucket][bucket] ...   [bucket] ...     [bucket now ]

    expected = views before / length before * length of recent until now
    score    = (views - expected) / sqrt(expected + smoothing)

The score is by how many standard deviations chance would have to help; smoothing keeps pages of few views down. Where
nothing is known from before the period's start, the length before begins with the first bucket there is.

Counts of buckets can be added up in any order. So late events count as if they had come in time, until their bucket has
left the period; and what is counted in portions ranks like what is counted at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls them

from skylog.errors import ConfigError
from skylog.spark.jobs.event_fields import event_fields

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

HOUR_MS: Final = 3_600_000
PAGE: Final = "coalesce(attributes.page, attributes.path)"
VIEW: Final = "page.view"
TOP: Final = 100
SMOOTHING: Final = 1.0


@dataclass(frozen=True)
class Period:
    """The last 24 hours, of which the last is recent, in buckets of ten minutes."""

    length_ms: int = 24 * HOUR_MS
    recent_ms: int = HOUR_MS
    bucket_ms: int = HOUR_MS // 6

    def __post_init__(self) -> None:
        if not 0 < self.bucket_ms <= self.recent_ms < self.length_ms:
            raise ConfigError(
                f"a period of {self.length_ms} ms, {self.recent_ms} ms of it recent, in buckets of {self.bucket_ms}: "
                "recent must be shorter than the period, and a bucket no longer than recent"
            )
        if self.recent_ms % self.bucket_ms or self.length_ms % self.bucket_ms:
            raise ConfigError(
                f"the period ({self.length_ms} ms) and its recent part ({self.recent_ms} ms) must be whole buckets of "
                f"{self.bucket_ms} ms"
            )

    def bucket_of(self, time_ms: Column) -> Column:
        return time_ms - time_ms % self.bucket_ms

    def start_of(self, now_ms: int) -> int:
        """The first bucket of the period that now lies at the end of."""
        return now_ms - now_ms % self.bucket_ms + self.bucket_ms - self.length_ms


def page_views(records: DataFrame, page: str = PAGE, event: str = VIEW) -> DataFrame:
    """(page, timestamp) of the records that are views; the SQL expression `page` finds the page in the event."""
    fields = event_fields(records).where(F.col("event") == event)
    return fields.select(F.expr(page).cast("string").alias("page"), "record.timestamp").where("page IS NOT NULL")


def bucket_counts(views: DataFrame, period: Period) -> DataFrame:
    """(page, bucket_ms, views, newest_ms) of (page, timestamp)."""
    time_ms = F.unix_millis("timestamp")
    counted = views.select("page", period.bucket_of(time_ms).alias("bucket_ms"), time_ms.alias("time_ms"))
    return counted.groupBy("page", "bucket_ms").agg(F.count("*").alias("views"), F.max("time_ms").alias("newest_ms"))


def merge_counts(one: DataFrame, other: DataFrame) -> DataFrame:
    """Both counts as one."""
    return (
        one.unionByName(other)
        .groupBy("page", "bucket_ms")
        .agg(F.sum("views").alias("views"), F.max("newest_ms").alias("newest_ms"))
    )


def ranking(counts: DataFrame, period: Period, top: int = TOP, smoothing: float = SMOOTHING) -> DataFrame:
    """The `top` pages that are rising: rank, page, score, views, expected, total (of the period) and window_end."""
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


def rising(views: DataFrame, period: Period | None = None, top: int = TOP, smoothing: float = SMOOTHING) -> DataFrame:
    """The ranking of all `views` (page, timestamp) at once. The job comes to the same, increment by increment."""
    period = period or Period()
    return ranking(bucket_counts(views, period), period, top, smoothing)
