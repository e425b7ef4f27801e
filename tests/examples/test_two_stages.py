"""The example of two stages, run as its README says."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the stages run on Spark: pip install -e '.[spark]'")

from pyspark.sql import SparkSession

from skylog import Admin
from skylog.testing import BrokerProcess, consume, produce
from tests.proof import IS_FULL
from tests.spark.conftest import spark, spark_session

__all__ = ["spark", "spark_session"]

STAGES = Path(__file__).parents[2] / "examples" / "two_stages" / "stages.py"


def view(user: int, page: str, dwell_s: float) -> dict[str, Any]:
    return {"event": "page.view", "user": {"id": user}, "attributes": {"page": page, "dwell_s": dwell_s}}


Run = Callable[[str, Path], None]


def run_as_program(bootstrap: str, directory: Path) -> None:
    command = [sys.executable, str(STAGES), "--once", "--bootstrap", bootstrap, "--master", "local[1]"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


def statistics(bootstrap: str) -> dict[str, dict[str, Any]]:
    messages = consume(bootstrap, "page_statistics")
    return {message.key.decode(): json.loads(message.value) for message in messages if message.key and message.value}


@pytest.mark.skipif(not IS_FULL, reason="with `make proof`; tests/pipeline has its jobs in increments and streams")
def test_views_are_counted_by_page_and_joined_with_the_catalogue(spark: SparkSession, tmp_path: Path) -> None:
    """In the session of the other tests."""
    spec = importlib.util.spec_from_file_location("stages", STAGES)
    assert spec is not None
    assert spec.loader is not None
    stages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stages)
    before = signal.getsignal(signal.SIGINT)
    try:
        check_stages(lambda bootstrap, directory: stages.run(spark, bootstrap, directory, once=True), tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(not IS_FULL, reason="with `make proof`: a JVM for each run")
def test_the_program_continues_with_the_counts_of_its_first_run(tmp_path: Path) -> None:
    check_stages(run_as_program, tmp_path)


def check_stages(run: Run, directory: Path) -> None:
    with BrokerProcess() as broker:
        admin = Admin(broker.bootstrap)
        admin.create_topic("page_views", partitions=2)
        admin.create_topic("pages", partitions=1, configs={"cleanup.policy": "compact"})
        for page, title in (("/", "Home"), ("/a", "A"), ("/gone", "Gone")):
            produce(broker.bootstrap, "pages", [{"page": page, "title": title, "section": "s"}], key=page)
        produce(broker.bootstrap, "pages", [None], key="/gone")
        for user in range(6):
            views = [view(user, "/", user), view(user, "/gone", 1)]
            produce(broker.bootstrap, "page_views", views, key=str(user), partition=user % 2)
        run(broker.bootstrap, directory)
        assert statistics(broker.bootstrap) == {
            "/": {"page": "/", "views": 6, "dwell_s": 2.5, "title": "Home", "section": "s"},
            "/gone": {"page": "/gone", "views": 6, "dwell_s": 1.0},
        }
        by_page = consume(broker.bootstrap, "views_by_page")
        assert len(by_page) == 12
        assert len({(message.key, message.partition) for message in by_page}) == 2
        if IS_FULL:
            check_second_run(run, broker.bootstrap, directory)


def check_second_run(run: Run, bootstrap: str, directory: Path) -> None:
    """It continues with the counts of the first run."""
    produce(bootstrap, "pages", [{"page": "/", "title": "Start", "section": "s"}], key="/")
    produce(bootstrap, "page_views", [view(1, "/", 9.5), view(1, "/a", 3), {"event": "other"}], key="1")
    run(bootstrap, directory)
    found = statistics(bootstrap)
    assert found["/"] == {"page": "/", "views": 7, "dwell_s": 3.5, "title": "Start", "section": "s"}
    assert found["/a"] == {"page": "/a", "views": 1, "dwell_s": 3.0, "title": "A", "section": "s"}
    assert found["/gone"]["views"] == 6
