"""The tests that are slow by nature: Spark, JVMs, browsers, databases, clients of other languages, kills under load,
clusters of processes, and files that start many brokers.

`pytest --quick`, which `make quick` runs, skips them. A whole run starts with them, in this order, the longest first,
so that no worker is left with a test of minutes at the end.
"""

from __future__ import annotations

HEAVY = (
    "tests/spark/",
    "tests/pipeline/",
    "tests/demo/",
    "tests/examples/test_declarative_pipeline.py",
    "tests/examples/test_two_stages.py",
    "tests/cli/pipelines/test_new.py",
    "tests/test_tutorial.py",
    "tests/faults/test_group_churn.py",
    "tests/clients/",
    "tests/faults/",
    "tests/console/browser/",
    "tests/console/test_apache_kafka.py",
    "tests/cluster/test_zookeeper.py",
    "tests/cluster/test_secure_zookeeper.py",
    "tests/cli/test_cluster_up.py",
    "tests/cli/test_cluster_up_secured.py",
    "tests/audit/test_failover.py",
    "tests/audit/test_across_clusters.py",
    "tests/registry/test_several.py",
    "tests/registry/",
    "tests/capture/",
    "tests/console/pages/test_schemas.py",
    "tests/cli/test_mirror.py",
    "tests/cli/test_mirror_secured.py",
    "tests/cli/test_zookeeper.py",
    "tests/examples/",
    "tests/simulation/test_runs.py",
    "tests/cli/test_cluster_commands.py",
    "tests/testing/",
    "tests/test_docs_examples.py",
    "tests/client/test_replay.py",
    "tests/broker/test_restart.py",
    "tests/broker/test_long_answers.py",
    "tests/broker/test_role_changes.py",
    "tests/broker/test_group_elections.py",
    "tests/cli/test_audit.py",
    "tests/cli/test_replay.py",
    "tests/cli/test_serve.py",
    "tests/console/pages/test_cluster.py",
    "tests/console/pages/test_health.py",
    "tests/cli/test_startup.py",
    "tests/test_scheduling.py",
    "tests/client/test_typing.py",
    "tests/schemas/test_hostile.py",
    "tests/storage/test_model.py",
)


def rank(path: str) -> int:
    """The place of a file, below the root of the project, in the order of work."""
    return next((number for number, prefix in enumerate(HEAVY) if path.startswith(prefix)), len(HEAVY))


def is_heavy(path: str) -> bool:
    return rank(path) < len(HEAVY)
