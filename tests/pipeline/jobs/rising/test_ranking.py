"""How pages are ranked: by what exceeds the expectation, in the time of the events."""

from __future__ import annotations

from datetime import UTC, datetime
from math import sqrt

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from skylog.errors import ConfigError
from skylog.pipeline.jobs.rising import RankingPeriod, bucket_counts, merge_counts, ranking, rising

HOUR_S = 3600
NOON_S = 1_700_000_000 - 1_700_000_000 % (24 * HOUR_S) + 12 * HOUR_S


def views_of(spark: SparkSession, times: dict[str, list[float]]) -> DataFrame:
    """Views of pages, at seconds before or after noon."""
    rows = [
        (page, datetime.fromtimestamp(NOON_S + second, UTC)) for page, seconds in times.items() for second in seconds
    ]
    return spark.createDataFrame(rows, "page STRING, timestamp TIMESTAMP")


def every(step_s: float, start_s: float, end_s: float) -> list[float]:
    return [start_s + number * step_s for number in range(int((end_s - start_s) / step_s))]


def ranked(frame: DataFrame) -> list[Row]:
    return frame.orderBy("rank").collect()


def test_a_page_rises_by_what_exceeds_its_past(spark: SparkSession) -> None:
    views = views_of(
        spark,
        {
            "steady": every(10, -24 * HOUR_S, HOUR_S),
            "doubled": [*every(10, -24 * HOUR_S, 0), *every(5, 0, HOUR_S)],
            "new": every(12, 0, HOUR_S),
            "rare": [60.0],
            "falling": [*every(10, -24 * HOUR_S, 0), 60.0],
            "gone": every(10, -20 * HOUR_S, -10 * HOUR_S),
            "clock": [HOUR_S - 0.001],
        },
    )
    found = {row["page"]: row for row in ranked(rising(views))}
    assert list(found) == ["new", "doubled", "clock", "rare", "steady"]
    assert [row["rank"] for row in found.values()] == list(range(1, len(found) + 1))
    new, doubled = found["new"], found["doubled"]
    assert (new["views"], new["expected"], new["score"], new["total"]) == (300, 0, 300, 300)
    # The last bucket ends at one o'clock: 23 hours are before it, 8,280 views in them; the hour lacks a millisecond.
    assert doubled["expected"] == pytest.approx(360, rel=1e-5)
    assert (doubled["views"], doubled["total"]) == (720, 8280 + 720)
    assert doubled["score"] == pytest.approx((720 - doubled["expected"]) / sqrt(doubled["expected"] + 1))
    assert 0 < found["steady"]["score"] < 1e-4  # as expected, except for one millisecond


def test_time_is_that_of_the_newest_event(spark: SparkSession) -> None:
    views = views_of(spark, {"page": [0, 10.5], "old": [-25 * HOUR_S]})
    rows = ranked(rising(views))
    assert [row["page"] for row in rows] == ["page"]
    end = rising(views).selectExpr("unix_millis(window_end) AS end_ms").first()
    assert end is not None
    assert end["end_ms"] == NOON_S * 1000 + 10_500


def test_expectations_come_from_as_far_back_as_something_is_known(spark: SparkSession) -> None:
    views = views_of(spark, {"page": [*every(100, -600, 0), *every(10, 0, HOUR_S)]})
    (page,) = ranked(rising(views))
    assert page["expected"] == pytest.approx(36, rel=0.01)  # six in ten minutes, though the period has 23 hours


def test_counts_in_portions_rank_like_counts_at_once(spark: SparkSession) -> None:
    period = RankingPeriod(4 * HOUR_S * 1000, HOUR_S * 1000, 600_000)
    times = {"a": every(50, -4 * HOUR_S, HOUR_S), "b": every(31, -2 * HOUR_S, HOUR_S), "c": every(7, 0, HOUR_S)}
    shuffled = [(page, second) for page, seconds in times.items() for second in seconds]
    portions = [shuffled[number::3] for number in (2, 0, 1)]  # each has early and late events
    counts = None
    for portion in portions:
        views = views_of(spark, {page: [second for name, second in portion if name == page] for page in times})
        new = bucket_counts(views, period)
        counts = new if counts is None else merge_counts(counts, new)
    assert counts is not None
    assert ranked(ranking(counts, period)) == ranked(rising(views_of(spark, times), period))


def test_only_the_top_is_ranked_and_ties_have_an_order(spark: SparkSession) -> None:
    views = views_of(spark, {"b": [1, 2], "a": [1, 2], "c": [1, 2, 3], "d": [1]})
    assert [row["page"] for row in ranked(rising(views, top=3))] == ["c", "a", "b"]


def test_no_views_are_no_ranking(spark: SparkSession) -> None:
    assert ranked(rising(views_of(spark, {}))) == []


@pytest.mark.parametrize(("length", "recent", "bucket"), [(10, 10, 5), (10, 5, 6), (10, 4, 3), (10, 5, 0), (11, 5, 5)])
def test_a_period_is_whole_buckets_and_longer_than_its_recent_part(length: int, recent: int, bucket: int) -> None:
    with pytest.raises(ConfigError, match="bucket"):
        RankingPeriod(length, recent, bucket)
