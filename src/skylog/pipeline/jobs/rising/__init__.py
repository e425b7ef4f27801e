"""The job `rising`: ranks the rising pages of the last 24 hours, as a topic and as a table.

    rising_job(["page_views"], "rising").run(spark, "127.0.0.1:9092")

The function `rising` is the ranking alone, as a DataFrame transform.
"""

from skylog.pipeline.jobs.rising.job import rising_job
from skylog.pipeline.jobs.rising.ranking import RankingPeriod, bucket_counts, merge_counts, page_views, ranking, rising

__all__ = ["RankingPeriod", "bucket_counts", "merge_counts", "page_views", "ranking", "rising", "rising_job"]
