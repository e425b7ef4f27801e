"""The job `materialize`."""
