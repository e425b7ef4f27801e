"""The job `rising`: ranks the rising pages of the last 24 hours, as a topic and as a table."""

from skylog.pipeline.jobs.rising.job import Rising
from skylog.pipeline.jobs.rising.ranking import RankingPeriod, bucket_counts, merge_counts, page_views, ranking, rising

__all__ = ["RankingPeriod", "Rising", "bucket_counts", "merge_counts", "page_views", "ranking", "rising"]
