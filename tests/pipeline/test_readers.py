"""One table as other engines read it: DuckDB with its Delta extension, Spark with delta-spark, Polars, pandas.

It has partitions, of which one is null, rows that were replaced and removed, and a column that was added later.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import polars
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from skylog.model import TopicPartition
from skylog.pipeline import Table
from tests.pipeline.delta_readers import query
from tests.proof import IS_FULL
from tests.spark.peers.installed import Interpreter, NotInstalledError, packages
from tests.spark.peers.jars import NoJarsError, delta_jars_of

KEY = TopicPartition("users", 0)
SCRIPTS = (Path(__file__).with_name("delta_scan.py"), Path(__file__).parents[1] / "spark/peers/delta_reader.py")
SPARK_VERSION = "4.2"  # the newest that delta-spark has a jar for
SUMS = "SELECT count(*), sum(id), count(name), count(email) FROM t"
BY_CITY = "SELECT city, count(*) FROM t GROUP BY city ORDER BY city NULLS FIRST"
EXPECTED = [[[19, 180, 19, 1]], [[None, 6], ["Oslo", 7], ["São Paulo", 6]]]


@pytest.fixture(scope="module")
def table(spark_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("readers") / "users"
    users = Table(path, key=("id",), partition_by=("city",), deleted="gone")
    city = "CASE id % 3 WHEN 0 THEN 'Oslo' WHEN 1 THEN 'São Paulo' END AS city"
    rows = spark_session.range(0, 20).selectExpr("id", "'user ' || id AS name", city, "false AS gone")
    users.open().write(rows, {}, {KEY: 20})
    changes = "VALUES (3L, 'new', 'Oslo', 'a@b.c', false), (10L, NULL, 'São Paulo', NULL, true)"
    changed = spark_session.sql(f"SELECT * FROM {changes} AS changes(id, name, city, email, gone)")
    users.open().write(changed, {KEY: 20}, {KEY: 22})
    return path


def test_duckdb_polars_and_pandas_read_the_same_rows(table: Path) -> None:
    assert [list(map(list, query(table, sql))) for sql in (SUMS, BY_CITY)] == EXPECTED
    found = polars.read_delta(str(table))
    assert [found.height, found["id"].sum(), found["email"].count()] == [19, 180, 1]
    frame = DeltaTable(str(table)).to_pandas()
    assert frame.groupby("city", dropna=False)["id"].count().to_dict()["Oslo"] == 7


def test_the_delta_extension_of_duckdb_reads_the_same_rows(table: Path) -> None:
    try:
        found = packages("duckdb-extension-delta", is_allowed=IS_FULL)
    except NotInstalledError as error:
        pytest.skip(str(error))
    command = [sys.executable, str(SCRIPTS[0]), str(table), SUMS, BY_CITY]
    variables = {**os.environ, "PYTHONPATH": str(found)}
    done = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == EXPECTED


@pytest.mark.skipif(not IS_FULL, reason="with `make proof`: it installs another PySpark")
@pytest.mark.timeout(1800)
def test_delta_spark_reads_the_same_rows(table: Path, tmp_path: Path) -> None:
    try:
        jars = ",".join(map(str, delta_jars_of(SPARK_VERSION)))
        interpreter = Interpreter(SPARK_VERSION)
    except (NoJarsError, NotInstalledError) as error:
        pytest.skip(str(error))
    said = interpreter.run(SCRIPTS[1], jars, table, SUMS, BY_CITY, directory=tmp_path)
    assert json.loads(said.splitlines()[-1]) == EXPECTED
