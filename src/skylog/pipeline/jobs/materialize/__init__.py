"""The job `materialize`: a table with the current rows of a changelog topic, and its state at earlier offsets."""

from skylog.pipeline.jobs.materialize.changes import Envelope, changes, materialize
from skylog.pipeline.jobs.materialize.database import materialize_into_database
from skylog.pipeline.jobs.materialize.job import materialize_job
from skylog.pipeline.jobs.materialize.past import AsOfError, as_of, offsets_at

__all__ = [
    "AsOfError",
    "Envelope",
    "as_of",
    "changes",
    "materialize",
    "materialize_into_database",
    "materialize_job",
    "offsets_at",
]
