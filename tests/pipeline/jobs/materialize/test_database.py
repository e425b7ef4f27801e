"""A changelog as a table of a database: equal to a dict with the same changes, whatever is killed in between."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from skylog import Admin
from skylog.cli.main import command_line
from skylog.errors import ConfigError
from skylog.pipeline import Cluster, StoreError
from skylog.pipeline.jobs.materialize import Envelope, changes, materialize, materialize_into_database
from skylog.pipeline.runnable import JobRun
from skylog.testing import BrokerProcess, produce
from tests.pipeline.databases.servers import wait_for
from tests.pipeline.jobs.materialize.changelog import SCHEMA, Changelog, Rows
from tests.proof import in_proof
from tests.seeds import seed as seed_of_this_run
from tests.spark.conftest import COMMAND_MASTER, Commands

KILLS = 6
BATCH = 200
PATIENCE_S = 400


@pytest.fixture
def changelog(skylog_broker: BrokerProcess) -> Changelog:
    name = f"users-{uuid.uuid4().hex[:8]}"
    Admin(skylog_broker.bootstrap).create_topic(name, partitions=2, configs={"retention.ms": "-1"})
    return Changelog(skylog_broker.bootstrap, name)


def run(spark: SparkSession, log: Changelog, url: str, table: str, max_offsets: int | None = None) -> None:
    job = materialize_into_database(log.topic, url, table, SCHEMA)
    job.run_with(spark, Cluster(log.bootstrap), JobRun(max_offsets=max_offsets))


def stored(url: str, table: str) -> tuple[Rows, dict[int, int]]:
    """Return the rows and the offsets of one moment. Both are empty before the first commit."""
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        if connection.execute("SELECT to_regclass(%s)", (table,)).fetchall() == [(None,)]:
            return {}, {}
        query = sql.SQL("SELECT _key, name, age FROM {}").format(sql.Identifier(table))
        rows = {bytes(key).decode(): (name, age) for key, name, age in connection.execute(query).fetchall()}
        query = sql.SQL("SELECT partition, end_offset FROM {}").format(sql.Identifier(f"{table}_offsets"))
        return rows, dict(connection.execute(query).fetchall())


def test_the_table_is_what_a_dict_would_be_and_belongs_to_one_topic(
    spark: SparkSession, changelog: Changelog, postgres: str, table: str
) -> None:
    for count, max_offsets in ((200, 70), (30, None)):
        changelog.change(count)
        run(spark, changelog, postgres, table, max_offsets)
        ends = {number: len(changes) for number, changes in changelog.sent.items()}
        assert stored(postgres, table) == (changelog.rows(), ends)
    produce(changelog.bootstrap, changelog.topic, [b"{"], key="odd")
    run(spark, changelog, postgres, table)
    with psycopg.connect(postgres) as connection:
        found = connection.execute(
            sql.SQL("SELECT name, age, _corrupt, _partition IS NULL FROM {} WHERE _key = 'odd'").format(
                sql.Identifier(table)
            )
        ).fetchall()
    assert found == [(None, None, "{", False)]
    other = Changelog(changelog.bootstrap, f"{changelog.topic}-other")
    with pytest.raises(StoreError, match=f"is the table of topic '{changelog.topic}'"):
        run(spark, other, postgres, table)


def envelope(op: str, after: dict[str, Any] | None) -> str:
    return json.dumps({"before": {"name": "old"}, "after": after, "op": op, "source": {"table": "users"}})


def test_an_envelope_of_debezium_is_opened(spark: SparkSession) -> None:
    ada = {"name": "ada", "age": 36}
    values = [
        ("a", envelope("c", {"name": "ada", "age": 35})),
        ("a", envelope("u", ada)),
        ("b", envelope("r", {"name": "bob", "age": 5})),
        ("b", envelope("d", None)),
        ("c", envelope("c", {"name": "cy", "age": 1})),
        ("c", envelope("d", None)),
        ("c", None),
        ("d", json.dumps(ada)),
        ("e", envelope("c", {"name": "eve", "age": "old"})),
    ]
    rows = [
        (bytearray(key.encode()), value and bytearray(value.encode()), 0, at) for at, (key, value) in enumerate(values)
    ]
    frame = spark.createDataFrame(rows, "key binary, value binary, partition int, offset long").selectExpr(
        "*", "timestamp_millis(offset) AS timestamp"
    )
    found = materialize(changes(frame, SCHEMA, Envelope.DEBEZIUM)).orderBy("_key").collect()
    assert [(bytes(row["_key"]).decode(), row["name"], row["age"], row["_corrupt"]) for row in found] == [
        ("a", "ada", 36, None),
        ("d", None, None, values[-2][1]),
        ("e", None, None, values[-1][1]),
    ]


def test_the_command_keeps_a_table_of_sqlite(commands: Commands, changelog: Changelog, tmp_path: Path) -> None:
    command = ["pipeline", "run", "materialize", changelog.topic, "--database", "sqlite:///copy.db", "--table", "users"]
    command += ["--schema", SCHEMA, "--envelope", "debezium", "--once", "--bootstrap", changelog.bootstrap]
    for key, age in (("ada", 36), ("bob", 5)):
        produce(changelog.bootstrap, changelog.topic, [envelope("c", {"name": key, "age": age})], key=key)
    produce(changelog.bootstrap, changelog.topic, [envelope("d", None)], key="bob")
    commands.run(*command, directory=tmp_path)
    with closing(sqlite3.connect(tmp_path / "copy.db")) as connection:
        assert connection.execute("SELECT _key, name, age FROM users").fetchall() == [(b"ada", "ada", 36)]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--as-of", "v1", "--into", "then", "--database", "sqlite:///a.db"], "a database has no earlier states"),
        (["--envelope", "paper"], "expected plain or debezium, got 'paper'"),
    ],
)
def test_mistakes_are_reported_at_once(options: list[str], problem: str) -> None:
    command = ["pipeline", "run", "materialize", "users", "--schema", SCHEMA, "--table", "users", *options]
    result = CliRunner().invoke(command_line(), command, env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert problem in result.output


def test_a_database_without_deletes_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"mongodb://host/db table users: rows of MongoDB cannot be deleted"):
        materialize_into_database("users", "mongodb://ada:secret@host/db", "users", SCHEMA)


@in_proof
def test_the_rows_are_those_of_the_offsets_at_whatever_moment_the_command_is_killed(
    changelog: Changelog, postgres: str, table: str, tmp_path: Path
) -> None:
    seed = seed_of_this_run()
    drawn = random.Random(seed)
    command = [sys.executable, "-m", "skylog.cli.main", "pipeline", "run", "materialize", changelog.topic]
    command += ["--database", postgres, "--table", table, "--schema", SCHEMA, "--max-offsets", str(BATCH)]
    command += ["--bootstrap", changelog.bootstrap, *COMMAND_MASTER]
    for number in range(KILLS):
        changelog.change(12 * BATCH)
        before = sum(stored(postgres, table)[1].values())
        goal = before + drawn.randrange(1, 6 * BATCH)
        with (tmp_path / "log").open("ab") as log:
            job = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            wait_for(
                lambda: sum(stored(postgres, table)[1].values()) >= goal or job.poll() is not None,  # noqa: B023
                "progress",
                PATIENCE_S,
            )
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
        rows, ends = stored(postgres, table)
        assert sum(ends.values()) >= goal, (tmp_path / "log").read_text()[-2000:]
        assert rows == changelog.rows(ends), f"seed {seed}, kill {number}"
    subprocess.run([*command, "--once"], check=True, capture_output=True, timeout=PATIENCE_S)
    ends = {number: len(changes) for number, changes in changelog.sent.items()}
    assert stored(postgres, table) == (changelog.rows(), ends), f"seed {seed}"
