"""The check of executors: each fault is named with its fix."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from skylog import __version__
from skylog.spark import workers
from skylog.spark.workers import Probe, WorkerError, check_workers
from tests.proof import in_proof, some

GOOD = Probe("far-away", "/usr/bin/python3", sys.version_info[:2], __version__, "", True)


def test_executors_of_this_machine_pass(spark: SparkSession, tmp_path: Path) -> None:
    check_workers(spark)
    check_workers(spark, tmp_path / "new")
    assert not list((tmp_path / "new").iterdir())


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"skylog": None, "reason": "No module named 'skylog'"}, r"far-away .*cannot import skylog.*PYSPARK_PYTHON"),
        ({"skylog": "0.0.1"}, "far-away .*has skylog 0.0.1, the driver .*install the same version"),
        ({"python": (3, 9)}, r"Python 3\.9 at /usr/bin/python3\) has another Python than the driver .*PYSPARK_PYTHON"),
        (
            {"sees_marker": False},
            "far-away .*does not see the driver's files in /shared: use a directory that is mounted",
        ),
    ],
)
def test_each_fault_is_named_with_its_fix(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, fault: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr(workers, "_run", lambda *_: [GOOD, GOOD._replace(**fault)])
    monkeypatch.setattr(workers, "_marker", lambda _: nullcontext("/shared/marker"))
    with pytest.raises(WorkerError, match=message):
        check_workers(spark, "/shared")


FAULTY = """
from skylog.spark.session import start_session
from skylog.spark.workers import WorkerError
settings = {"spark.executor.memory": "512m", "spark.driver.memory": "512m"}
try:
    start_session("faulty", "local-cluster[1,1,512]", settings)
except WorkerError as error:
    print(error)
"""
WITHOUT_PACKAGES = """#!/bin/sh
exec "{}" -S "$@"
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("interpreter", "message"),
    some(
        [
            ("without-packages", r"the executor on .* cannot import skylog \(No module named .*set PYSPARK_PYTHON"),
            ("missing", r"executors cannot start Python: .*missing.*They run the interpreter in PYSPARK_PYTHON"),
        ],
        usual=1,
    ),
)
@in_proof
def test_a_session_whose_executors_lack_something_says_so_at_the_start(
    tmp_path: Path, interpreter: str, message: str
) -> None:
    """Executors are processes of their own here, with an interpreter that has no packages, or that does not exist."""
    python = tmp_path / "without-packages"
    python.write_text(WITHOUT_PACKAGES.format(sys.executable))
    python.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", FAULTY],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": str(tmp_path / interpreter)},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert re.search(message, done.stdout), done.stdout + done.stderr[-2000:]
