"""Executors that do not share the driver's disk: every job fails with an explanation, and commits nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skylog import Admin
from skylog.model import TopicPartition
from skylog.pipeline.table import Table
from skylog.testing import BrokerProcess, produce
from tests.pipeline.blind_executors import TOPIC
from tests.pipeline.standalone.cluster import IN_NAMESPACE
from tests.proof import IS_FULL

VIEWS = [{"id": str(number), "event": "page.view", "attributes": {"page": "/"}} for number in range(20)]


class Raised:
    """What the jobs have raised, by name, and where they were to write."""

    def __init__(self, messages: dict[str, Any], root: Path, bootstrap: str) -> None:
        self.messages, self.root, self.bootstrap = messages, root, bootstrap


@pytest.fixture(scope="module")
def raised(skylog_broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Raised:
    """One process for all jobs: it starts two JVMs."""
    if not IS_FULL:
        pytest.skip("with `make proof`; the short form is in test_table.py")
    if subprocess.run([*IN_NAMESPACE, "true"], capture_output=True).returncode:
        pytest.skip("mount namespaces cannot be made here")
    root = tmp_path_factory.mktemp("blind")
    Admin(skylog_broker.bootstrap).create_topic(TOPIC, partitions=1)
    produce(skylog_broker.bootstrap, TOPIC, VIEWS, key="k")
    command = [sys.executable, "-m", "tests.pipeline.blind_executors", skylog_broker.bootstrap, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return Raised(json.loads(done.stdout.splitlines()[-1]), root, skylog_broker.bootstrap)


@pytest.mark.parametrize(
    ("job", "table"),
    [
        ("landing", f"warehouse/{TOPIC}"),
        ("materializing", "materialized__changes"),
        ("rising", "rising__counts"),
        ("auditing", "balance"),
    ],
)
def test_tables_get_no_rows(raised: Raised, job: str, table: str) -> None:
    assert "LostFilesError" in raised.messages[job]
    assert "the driver does not see it, so nothing was committed" in raised.messages[job]
    found = Table(raised.root / table)
    assert found.log().files() == []
    assert found.offsets([TOPIC]) == {}


def test_the_sink_sends_nothing_and_names_the_option(raised: Raised) -> None:
    assert "set the option stagingLocation to a directory that the driver shares" in raised.messages["writing"]
    where = TopicPartition(TOPIC, 0)
    assert Admin(raised.bootstrap).offset_ranges([where])[where].end_offset == len(VIEWS)
