"""`skylog pipeline new`: the project runs as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("pyspark", reason="jobs run on Spark: pip install -e '.[spark]'")

from pyspark.sql import SparkSession

from skylog.cli.main import command_line
from skylog.testing import BrokerProcess
from tests.proof import IS_FULL
from tests.spark.conftest import spark, spark_session

app = command_line()

__all__ = ["spark", "spark_session"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["pipeline", "new", "shop"]).exit_code == 0
    assert sorted(path.name for path in (tmp_path / "shop").iterdir()) == ["README.md", "jobs.py", "test_jobs.py"]
    return tmp_path / "shop"


def test_the_tests_of_a_new_project_pass(
    spark: SparkSession, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the session of the other tests; the next test starts one, as pytest does in the project."""
    monkeypatch.syspath_prepend(project)
    tests = import_module("test_jobs")
    try:
        found = {name: each for name, each in vars(tests).items() if name.startswith("test_")}
        assert list(found) == ["test_views_are_counted_by_page_and_day", "test_counts_go_from_the_topic_to_the_table"]
        tests.test_views_are_counted_by_page_and_day(spark)
        with BrokerProcess() as broker:
            tests.test_counts_go_from_the_topic_to_the_table(spark, broker, tmp_path, monkeypatch)
    finally:
        for name in ("test_jobs", "jobs"):
            sys.modules.pop(name)


@pytest.mark.skipif(not IS_FULL, reason="with `make proof`: a JVM of its own")
def test_pytest_runs_a_new_project(project: Path) -> None:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_nothing_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "jobs.py").write_text("mine")
    result = CliRunner().invoke(app, ["pipeline", "new", "shop"], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert "is not an empty directory" in result.output
    assert (tmp_path / "shop" / "jobs.py").read_text() == "mine"
    assert CliRunner().invoke(app, ["pipeline", "new", "a b"]).exit_code == 2
