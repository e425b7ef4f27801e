"""Ranks the pages that were seen together with a page. Keeps the counts behind the ranking in the same rows.

    page         the page
    visits       the number of visits that have seen it
    together     the number of visits in which it was seen together with each other page: a map
    recommended  the best of those pages: an array of `page`, `together` and `score`, best first

    score = together / sqrt(visits of the page * visits of the other)

The score is the cosine of the two pages' visits. It lowers pages that everybody sees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOP: Final = 10
LEAST: Final = 2


def merged(counts: DataFrame, table: DataFrame | None) -> DataFrame:
    """Return page, other and together: those of `seen_together` added to those of the table."""
    if table is None:
        return counts
    pairs = table.select("page", F.explode("together").alias("other", "together"))
    visits = table.selectExpr("page", "CAST(NULL AS STRING) AS other", "visits AS together")
    every = counts.unionByName(pairs).unionByName(visits)
    return every.groupBy("page", "other").agg(F.sum("together").alias("together"))


def recommend(counts: DataFrame, top: int = TOP, least: int = LEAST) -> DataFrame:
    """Return a row for each page. Only pages that at least `least` visits have seen with it are recommended."""
    visits = counts.where("other IS NULL").selectExpr("page", "together AS visits")
    pairs = counts.where("other IS NOT NULL")
    others = visits.selectExpr("page AS other", "visits AS other_visits")
    scored = pairs.join(others, "other").join(visits, "page")
    score = F.round(F.col("together") / F.sqrt(F.col("visits") * F.col("other_visits")), 4)
    ranked = (
        scored.withColumn("score", score)
        .groupBy("page")
        .agg(
            F.map_from_entries(F.collect_list(F.struct("other", "together"))).alias("together"),
            F.sort_array(
                F.collect_list(
                    F.when(
                        F.col("together") >= least,
                        F.struct((-F.col("score")).alias("order"), F.col("other").alias("page"), "together", "score"),
                    )
                )
            ).alias("ranked"),
        )
    )
    best = f"transform(slice(ranked, 1, {top}), each -> struct(each.page, each.together, each.score))"
    empty = "array<struct<page:string,together:bigint,score:double>>"
    return visits.join(ranked, "page", "left").selectExpr(
        "page",
        "visits",
        "coalesce(together, CAST(map() AS map<string,bigint>)) AS together",
        f"coalesce({best}, CAST(array() AS {empty})) AS recommended",
    )
