"""The job `materialize`: a keyed changelog topic as a table of its current rows, and as it was at any offset."""

from skylog.spark.jobs.materialize.changes import changes, materialize
from skylog.spark.jobs.materialize.job import Materialize
from skylog.spark.jobs.materialize.past import AsOfError, as_of, offsets_at
from skylog.spark.jobs.versioned_table import TableError, Version, VersionedTable, newest_version

__all__ = [
    "AsOfError",
    "Materialize",
    "TableError",
    "Version",
    "VersionedTable",
    "as_of",
    "changes",
    "materialize",
    "newest_version",
    "offsets_at",
]
