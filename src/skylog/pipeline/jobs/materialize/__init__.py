"""The job `materialize`: a table with the current rows of a changelog topic, and its state at earlier offsets."""

from skylog.pipeline.jobs.materialize.changes import changes, materialize
from skylog.pipeline.jobs.materialize.job import Materialize
from skylog.pipeline.jobs.materialize.past import AsOfError, as_of, offsets_at

__all__ = ["AsOfError", "Materialize", "as_of", "changes", "materialize", "offsets_at"]
