"""The job `visits`: counts visits per organisation and day in a database, exactly once even after crashes.

    visits_job(["page_views"], "sqlite:///visits.db").run(spark, "127.0.0.1:9092")

The function `visits` is the counting alone, as a DataFrame transform.
"""

from skylog.pipeline.jobs.visits.counting import ANY_EVENT, ORGANISATION_FIELDS, PAGE_VIEW, visits
from skylog.pipeline.jobs.visits.job import LAYOUT, visits_job

__all__ = ["ANY_EVENT", "LAYOUT", "ORGANISATION_FIELDS", "PAGE_VIEW", "visits", "visits_job"]
