"""Checks that Spark and Java are installed before a pipeline job starts."""

from __future__ import annotations

import importlib.util

from skylog.java import RequirementError, check_java


def check_requirements(*, needs_java: bool = True) -> None:
    """Raise RequirementError with installation instructions if something is missing."""
    missing = [name for name in ("pyspark", "pyarrow", "numpy", "deltalake") if importlib.util.find_spec(name) is None]
    if missing:
        raise RequirementError(f"the pipeline requires Spark, but {missing[0]} is missing: pip install 'skylog[spark]'")
    if needs_java:
        check_java("Spark")
