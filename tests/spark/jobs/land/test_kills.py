"""A million events (with `make proof`) land while driver, JVM and Python workers are killed: each is there once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from skylog import Admin, Producer
from skylog.audit import ProducerAudit
from skylog.cli.main import app
from skylog.spark.jobs.land.commit_log import CommitLog
from skylog.spark.jobs.land.table import home_of
from skylog.testing import BrokerProcess, wait_until
from tests.proof import IS_FULL, proof
from tests.spark.chance import chance

EVENTS = proof(1_000_000, 20_000)
IN_ONE_INCREMENT = EVENTS // proof(16, 8)
VICTIMS = ("driver", "JVM", "worker", "driver", "JVM")
KILLS = proof(5, 1)
PATIENCE_S = 120


def fill(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, audit=ProducerAudit("website"), config={"linger.ms": 50}) as producer:
        for number in range(EVENTS):
            value = b'{"id":"%08d","event":"page.view","user":{"id":%d},"attributes":{"page":"/%d"}}' % (
                number,
                number % 1000,
                number % 77,
            )
            producer.send(topic, value, partition=number % 2)
        assert producer.flush(PATIENCE_S) == 0
        assert producer.failed_count == 0


def children(pid: int) -> Iterator[tuple[int, str]]:
    """All that descend from a process, with their command lines."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    for each in found[1:]:
        try:
            yield each, Path(f"/proc/{each}/cmdline").read_text().replace("\0", " ")
        except (FileNotFoundError, ProcessLookupError):
            continue


def kill(driver: subprocess.Popen[bytes], victim: str) -> None:
    if victim == "driver":
        driver.kill()
        return
    sign = "java" if victim == "JVM" else "pyspark.daemon"
    for pid, command in children(driver.pid):
        if sign in command:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


@contextmanager
def job(bootstrap: str, topic: str, warehouse: Path, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    arguments = ["pipeline", "run", "land", topic, "--warehouse", str(warehouse), "--bootstrap", bootstrap, "--once"]
    arguments += ["--max-offsets", str(IN_ONE_INCREMENT), "--merge-after", "0s", "--master", "local[2]"]
    arguments += ["--conf", "spark.driver.memory=1g"]
    with output.open("wb") as out:
        driver = subprocess.Popen(
            [sys.executable, "-m", "skylog.cli.main", *arguments],
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield driver
        finally:
            with_jvm = [pid for pid, command in children(driver.pid) if "java" in command]
            driver.kill()
            driver.wait()
            for pid in with_jvm:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue


def landed(table: Path) -> int:
    log = CommitLog(home_of(table) / "log")
    return sum(log.read().end_offsets.values()) if log.path.is_dir() else 0


def is_in_the_middle(table: Path) -> bool:
    """Whether Spark is writing files of an increment."""
    return any((home_of(table) / "staging").glob("*/events/_temporary/**/*.parquet"))


def moment(table: Path, drawn: random.Random) -> tuple[Callable[[], object], str]:
    """When to strike: while an increment is written, or right after a commit."""
    enough = landed(table) + drawn.randrange(1, 2 * IN_ONE_INCREMENT)
    if drawn.random() < 0.5:
        return lambda: landed(table) >= enough, f"{enough} offsets in {table}"
    return lambda: is_in_the_middle(table) or landed(table) >= enough, f"an increment of {table}"


def noticed(driver: subprocess.Popen[bytes], table: Path) -> Callable[[], bool]:
    """The job ends, or, if the worker that was killed had nothing to do, goes on."""
    before = landed(table)
    return lambda: driver.poll() is not None or landed(table) > before


@pytest.mark.skipif(not IS_FULL, reason="with `make proof`; test_table.py dies between any two steps")
@pytest.mark.timeout(900)
def test_events_land_once_each_while_everything_is_killed(
    request: pytest.FixtureRequest, skylog_broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKYLOG_AUDIT_DIR", str(tmp_path / "audit"))
    bootstrap, topic = skylog_broker.bootstrap, f"million-{uuid.uuid4().hex[:8]}"
    Admin(bootstrap).create_topic(topic, partitions=2)
    fill(bootstrap, topic)
    table, output = tmp_path / "warehouse" / topic, tmp_path / "output"
    drawn = chance()
    for victim in drawn.sample(VICTIMS, KILLS):
        with job(bootstrap, topic, table.parent, output) as driver:
            ready, what = moment(table, drawn)
            wait_until(ready, what, PATIENCE_S)
            assert driver.poll() is None, output.read_text()
            kill(driver, victim)
            wait_until(noticed(driver, table), "the job to notice", PATIENCE_S)
        assert landed(table) < EVENTS
    with job(bootstrap, topic, table.parent, output) as driver:
        assert driver.wait(PATIENCE_S) == 0, output.read_text()
    check(request.getfixturevalue("spark"), bootstrap, topic, table)  # not before: one JVM at a time


def check(spark: SparkSession, bootstrap: str, topic: str, table: Path) -> None:
    counted = "count(*), count(DISTINCT id), count(DISTINCT (_partition, _offset))"
    with duckdb.connect() as connection:
        pattern = f"{table}/**/*.parquet"
        assert connection.execute(f"SELECT {counted} FROM read_parquet(?)", [pattern]).fetchall() == [(EVENTS,) * 3]
    (row,) = spark.read.parquet(str(table)).selectExpr("count(*)", "count(DISTINCT id)").collect()
    assert tuple(row) == (EVENTS, EVENTS)
    command = ["audit", "verify", "--topic", topic, "--tiers", "produced,stored,landed", "--bootstrap", bootstrap]
    result = CliRunner().invoke(app, [*command, "--wait", "30"])
    assert result.exit_code == 0, result.output
