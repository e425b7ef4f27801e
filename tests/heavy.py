"""What is slow by nature: Spark, JVMs, browsers, clients of other languages, kills under load.

`pytest --quick`, which is `make quick`, leaves it out. Otherwise it is begun first and in this order, the longest
first: what takes minutes must not be what one of two workers begins last.
"""

from __future__ import annotations

HEAVY = (
    "tests/spark/",
    "tests/cli/test_demo.py",
    "tests/examples/test_declarative_pipeline.py",
    "tests/examples/test_two_stages.py",
    "tests/faults/test_group_churn.py",
    "tests/clients/",
    "tests/faults/",
    "tests/console/browser/",
    "tests/console/test_apache_kafka.py",
    "tests/examples/",
)


def rank(path: str) -> int:
    """The place of a file, below the root of the project, in the order of work."""
    return next((number for number, prefix in enumerate(HEAVY) if path.startswith(prefix)), len(HEAVY))


def is_heavy(path: str) -> bool:
    return rank(path) < len(HEAVY)
