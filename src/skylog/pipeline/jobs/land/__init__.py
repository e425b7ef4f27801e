"""The job `land`: loads topics into a warehouse of Delta tables, each record exactly once. See docs/warehouse.md."""

from skylog.pipeline.jobs.land.job import LandSettings
from skylog.pipeline.jobs.land.run import Land, land, matching_topics
from skylog.pipeline.jobs.land.transform import ENVELOPE, event_schema, events_frame, unparsed_frame
from skylog.pipeline.jobs.land.upkeep import UpkeepSettings

__all__ = [
    "ENVELOPE",
    "Land",
    "LandSettings",
    "UpkeepSettings",
    "event_schema",
    "events_frame",
    "land",
    "matching_topics",
    "unparsed_frame",
]
