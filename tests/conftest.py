"""What all tests share."""

from __future__ import annotations

import importlib.util

import pytest
from hypothesis import settings

# A busy machine is no reason to fail: hypothesis looks for wrong results here, not for slow ones.
settings.register_profile("skylog", deadline=None)
settings.load_profile("skylog")

HAS_SPARK = importlib.util.find_spec("pyspark") is not None
collect_ignore = [] if HAS_SPARK else ["spark"]


def pytest_report_header() -> str:
    return "Spark: " + ("tested" if HAS_SPARK else "not installed, tests/spark is left out; pip install -e '.[spark]'")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let a worker have whole files, whose tests share brokers; and one of them all that shares the Spark session."""
    for item in items:
        path = str(item.path)
        item.add_marker(pytest.mark.xdist_group("spark" if "/tests/spark/" in path else path))
