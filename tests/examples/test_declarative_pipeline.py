"""The example for Spark Declarative Pipelines, run as its README says."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from skylog.testing import BrokerProcess, produce
from tests.proof import IS_FULL

duckdb = pytest.importorskip("duckdb")

MISSING = [
    name for name in ("pyspark", "grpc", "grpc_status", "pandas", "yaml", "zstandard") if find_spec(name) is None
]
pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"spark-pipelines wants {', '.join(MISSING)}: pip install 'pyspark[pipelines]' 'pandas<3'"
)

PROJECT = Path(__file__).parents[2] / "examples" / "declarative_pipeline"
# Derby, which keeps the catalog, need not survive a power failure.
JAVA = f"{os.environ['JDK_JAVA_OPTIONS']} -Dderby.system.durability=test"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project, which keeps all its files in its own directory."""
    copy = tmp_path / "project"
    ignored = shutil.ignore_patterns("__pycache__", "metastore_db", "spark-warehouse", "storage", "spark-pipeline.yml")
    shutil.copytree(PROJECT, copy, ignore=ignored)
    (command,) = (line.strip() for line in (copy / "README.md").read_text().splitlines() if "sed " in line[:9])
    subprocess.run(command, shell=True, cwd=copy, check=True)
    return copy


def run_pipeline(project: Path, bootstrap: str) -> None:
    command = [
        *(str(Path(sys.executable).with_name("spark-pipelines")), "run"),
        *("--conf", "spark.sql.catalogImplementation=hive", "--conf", "spark.driver.memory=1g"),
        *("--conf", "spark.sql.shuffle.partitions=2"),
    ]
    names = {"SKYLOG_BOOTSTRAP": bootstrap, "JDK_JAVA_OPTIONS": JAVA}
    process = subprocess.Popen(
        command,
        cwd=project,
        env={**os.environ, **names},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=280)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # Java, Python, and Java again
        raise
    assert process.returncode == 0, said[-4000:]


def rows(project: Path, table: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        columns = {"page_views": "page, user_id, dwell_s", "pages": "page, views, users, dwell_s"}[table]
        files = project / "spark-warehouse" / table / "*.parquet"
        return sorted(connection.execute(f"SELECT {columns} FROM read_parquet('{files}')").fetchall())


def view(page: str, user: int, dwell_s: float) -> dict[str, Any]:
    return {"event": "page.view", "user": {"id": user}, "attributes": {"page": page, "dwell_s": dwell_s}}


@pytest.mark.timeout(600)
def test_a_run_makes_the_tables_and_the_next_adds_what_has_come_since(project: Path) -> None:
    """The next one with `make proof`: each starts a JVM for the command and one for the server."""
    with BrokerProcess() as broker:
        produce(broker.bootstrap, "page_views", [view("/", 1, 2), view("/", 2, 3), view("/a", 1, 5), b"no event"])
        run_pipeline(project, broker.bootstrap)
        assert rows(project, "page_views") == [("/", 1, 2.0), ("/", 2, 3.0), ("/a", 1, 5.0)]
        assert rows(project, "pages") == [("/", 2, 2, 2.5), ("/a", 1, 1, 5.0)]
        assert (project / "storage").is_dir()
        if not IS_FULL:
            return
        produce(broker.bootstrap, "page_views", [view("/a", 1, 6)])
        run_pipeline(project, broker.bootstrap)
        assert rows(project, "page_views")[-2:] == [("/a", 1, 5.0), ("/a", 1, 6.0)]
        assert rows(project, "pages") == [("/", 2, 2, 2.5), ("/a", 2, 1, 5.5)]
