"""The job `recommendations`: pages that visitors have seen together, the best for each page.

    recommendations_job("127.0.0.1:9092", ["page_views"], "recommendations").run(spark, once=True)

The functions `page_views`, `seen_together` and `recommend` are its steps, as DataFrame transforms.
"""

from skylog.pipeline.jobs.recommendations.counting import PAGE, VISITOR, page_views, seen_together
from skylog.pipeline.jobs.recommendations.job import recommendations_job
from skylog.pipeline.jobs.recommendations.ranking import merged, recommend

__all__ = ["PAGE", "VISITOR", "merged", "page_views", "recommend", "recommendations_job", "seen_together"]
