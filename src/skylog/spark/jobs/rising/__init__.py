"""The job `rising`: the pages that are rising over the last 24 hours, as a topic and as a table."""

from skylog.spark.jobs.rising.job import Rising
from skylog.spark.jobs.rising.ranking import Period, bucket_counts, merge_counts, page_views, ranking, rising

__all__ = ["Period", "Rising", "bucket_counts", "merge_counts", "page_views", "ranking", "rising"]
