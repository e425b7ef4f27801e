"""The data pipeline: jobs that read topics with Spark and write topics, tables and databases, each exactly once.

    from skylog.pipeline import Topic, job

    @job(reads="comments", into=Topic("flagged"))
    def spam(events):
        flagged = events.where("event = 'comment.create' AND attributes['body'] RLIKE '(?i)free money'")
        return flagged.selectExpr("attributes['id'] AS key", "attributes['body'] AS value")

Requires `pip install 'skylog[spark]'`. Names are imported when they are used, because Spark's workers import this
package for every task.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from skylog.pipeline.cluster import Cluster
    from skylog.pipeline.database import Database, OffsetsMovedError, StoreError
    from skylog.pipeline.event_parser import ENVELOPE, SchemaError, events, unparsed
    from skylog.pipeline.job_definition import Job, job
    from skylog.pipeline.runner import JobError, Progress
    from skylog.pipeline.table import (
        ConcurrentWriterError,
        LostFilesError,
        Table,
        TableError,
        TableSchemaError,
        TableVersion,
    )
    from skylog.pipeline.topic import Topic

_MODULES: Final = {
    "cluster": ("Cluster",),
    "database": ("Database", "OffsetsMovedError", "StoreError"),
    "event_parser": ("ENVELOPE", "SchemaError", "events", "unparsed"),
    "job_definition": ("Job", "job"),
    "runner": ("JobError", "Progress"),
    "table": ("ConcurrentWriterError", "LostFilesError", "Table", "TableError", "TableSchemaError", "TableVersion"),
    "topic": ("Topic",),
}
_PLACES: Final = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "ENVELOPE",
    "Cluster",
    "ConcurrentWriterError",
    "Database",
    "Job",
    "JobError",
    "LostFilesError",
    "OffsetsMovedError",
    "Progress",
    "SchemaError",
    "StoreError",
    "Table",
    "TableError",
    "TableSchemaError",
    "TableVersion",
    "Topic",
    "events",
    "job",
    "unparsed",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = found
    return found
