"""Executors that do not share the driver's disk: every job says so, and commits nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skylog import Admin
from skylog.model import TopicPartition
from skylog.spark.jobs.land import snapshot
from skylog.spark.jobs.land.commit_log import CommitLog
from skylog.spark.jobs.land.table import home_of
from skylog.spark.jobs.versioned_table import newest_version
from skylog.testing import BrokerProcess, produce
from tests.proof import IS_FULL
from tests.spark.jobs.blind_executors import IN_NAMESPACE, TOPIC

VIEWS = [{"id": str(number), "event": "page.view", "attributes": {"page": "/"}} for number in range(20)]


class Raised:
    """What the jobs have raised, by name, and where they were to write."""

    def __init__(self, messages: dict[str, Any], root: Path, bootstrap: str) -> None:
        self.messages, self.root, self.bootstrap = messages, root, bootstrap


@pytest.fixture(scope="module")
def raised(skylog_broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Raised:
    """One process for all jobs: it starts two JVMs."""
    if not IS_FULL:
        pytest.skip("with `make proof`; the short form is in test_directories.py")
    if subprocess.run([*IN_NAMESPACE, "true"], capture_output=True).returncode:
        pytest.skip("mount namespaces cannot be made here")
    root = tmp_path_factory.mktemp("blind")
    Admin(skylog_broker.bootstrap).create_topic(TOPIC, partitions=1)
    produce(skylog_broker.bootstrap, TOPIC, VIEWS, key="k")
    command = [sys.executable, "-m", "tests.spark.jobs.blind_executors", skylog_broker.bootstrap, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return Raised(json.loads(done.stdout.splitlines()[-1]), root, skylog_broker.bootstrap)


def test_land_commits_nothing(raised: Raised) -> None:
    assert "LostRowsError" in raised.messages["landing"]
    assert "tasks wrote 20 rows, and the driver sees 0 of them" in raised.messages["landing"]
    table = raised.root / "warehouse" / TOPIC
    assert snapshot(table) == []
    assert CommitLog(home_of(table) / "log").read().end_offsets == {}


@pytest.mark.parametrize(("job", "table"), [("materializing", "materialized"), ("rising", "rising")])
def test_tables_that_are_replaced_as_a_whole_get_no_version(raised: Raised, job: str, table: str) -> None:
    assert "the driver sees 0 of them" in raised.messages[job]
    assert newest_version(raised.root / table) is None


def test_a_balance_is_not_saved(raised: Raised) -> None:
    assert "tasks wrote 3 rows, and the driver sees 0 of them" in raised.messages["auditing"]
    assert not (raised.root / "balance").exists()


def test_the_sink_sends_nothing_and_names_the_option(raised: Raised) -> None:
    assert "set the option stagingLocation to a directory that the driver shares" in raised.messages["writing"]
    where = TopicPartition(TOPIC, 0)
    assert Admin(raised.bootstrap).offset_ranges([where])[where].end_offset == len(VIEWS)
