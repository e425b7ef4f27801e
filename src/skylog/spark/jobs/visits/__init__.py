"""Visits per organisation and day, kept in a database, exact whatever dies on the way.

    store = open_store("sqlite:///visits.db")
    job = Visits(store, ["page_views"])
    run_increments(job, Increments("127.0.0.1:9092", ["page_views"]), spark, CONTINUOUS, Event(), print)

`visits` alone is the count, as a transform of DataFrames.
"""

from skylog.spark.jobs.visits.counting import ANY_EVENT, ORGANISATION_FIELDS, PAGE_VIEW, visits
from skylog.spark.jobs.visits.job import Visits
from skylog.spark.jobs.visits.stores import (
    DEFAULT_DATABASE,
    DEFAULT_TABLE,
    Count,
    OffsetsMovedError,
    StoreError,
    VisitStore,
    open_store,
)

__all__ = [
    "ANY_EVENT",
    "DEFAULT_DATABASE",
    "DEFAULT_TABLE",
    "ORGANISATION_FIELDS",
    "PAGE_VIEW",
    "Count",
    "OffsetsMovedError",
    "StoreError",
    "VisitStore",
    "Visits",
    "open_store",
    "visits",
]
