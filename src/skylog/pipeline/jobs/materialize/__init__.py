"""The job `materialize`: a table with the current rows of a changelog topic, and its state at earlier offsets."""

from skylog.pipeline.jobs.materialize.changes import changes, materialize
from skylog.pipeline.jobs.materialize.job import materialize_job
from skylog.pipeline.jobs.materialize.past import AsOfError, as_of, offsets_at

__all__ = ["AsOfError", "as_of", "changes", "materialize", "materialize_job", "offsets_at"]
