"""The job `visits`: counts visits per organisation and day in a database, exactly once even after crashes.

    job = Visits(open_store("sqlite:///visits.db", "visits"), ["page_views"])
    run_increments(job, Increments("127.0.0.1:9092", ["page_views"]), spark, CONTINUOUS, Event(), print)

The function `visits` is the counting alone, as a DataFrame transform.
"""

from skylog.pipeline.databases.store import OffsetsMovedError, StoreError, open_store
from skylog.pipeline.jobs.visits.counting import ANY_EVENT, ORGANISATION_FIELDS, PAGE_VIEW, visits
from skylog.pipeline.jobs.visits.job import LAYOUT, Visits

__all__ = [
    "ANY_EVENT",
    "LAYOUT",
    "ORGANISATION_FIELDS",
    "PAGE_VIEW",
    "OffsetsMovedError",
    "StoreError",
    "Visits",
    "open_store",
    "visits",
]
