"""`land`: topics into a warehouse of Parquet tables, each record once for any reader. See docs/warehouse.md."""

from skylog.spark.jobs.land.errors import ConcurrentWriterError, TableError
from skylog.spark.jobs.land.job import Land, LandSettings
from skylog.spark.jobs.land.landing import land
from skylog.spark.jobs.land.merge import MergeSettings
from skylog.spark.jobs.land.table import snapshot
from skylog.spark.jobs.land.transform import ENVELOPE, event_schema, events_frame, unparsed_frame

__all__ = [
    "ENVELOPE",
    "ConcurrentWriterError",
    "Land",
    "LandSettings",
    "MergeSettings",
    "TableError",
    "event_schema",
    "events_frame",
    "land",
    "snapshot",
    "unparsed_frame",
]
