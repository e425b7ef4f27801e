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

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from skylog import Admin, Producer
from skylog.audit import ProducerAudit
from skylog.cli.main import command_line
from skylog.pipeline.table import Table
from skylog.testing import BrokerProcess, wait_until
from tests.pipeline.delta.conftest import bucket, place, s3
from tests.pipeline.delta_readers import query
from tests.proof import IS_FULL, proof
from tests.spark.chance import chance

app = command_line()

__all__ = ["bucket", "place", "s3"]

EVENTS = proof(1_000_000, 20_000)
IN_ONE_INCREMENT = EVENTS // proof(16, 8)
VICTIMS = ("driver", "JVM", "worker", "driver", "JVM")
KILLS = proof(5, 1)
PATIENCE_S = 1800  # only a hang takes this long, on however busy a machine


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
def job(bootstrap: str, topic: str, warehouse: str, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    arguments = ["pipeline", "run", "land", topic, "--warehouse", warehouse, "--bootstrap", bootstrap, "--once"]
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


def landed(table: str) -> int:
    return sum(Table(table).offsets([table.rpartition("/")[2]]).values())


def is_in_the_middle(table: str) -> bool:
    """Whether there are files of an increment that is not committed yet. Not known of a store."""
    found = {path.name for path in Path(table).glob("event_date=*/event_hour=*/*.parquet")}
    return bool(found) and bool(found - {file.path.rpartition("/")[2] for file in Table(table).log().files()})


def moment(table: str, drawn: random.Random) -> tuple[Callable[[], object], str]:
    """When to strike: while an increment is written, or right after a commit."""
    enough = landed(table) + drawn.randrange(1, 2 * IN_ONE_INCREMENT)
    if drawn.random() < 0.5:
        return lambda: landed(table) >= enough, f"{enough} offsets in {table}"
    return lambda: is_in_the_middle(table) or landed(table) >= enough, f"an increment of {table}"


def noticed(driver: subprocess.Popen[bytes], table: str) -> Callable[[], bool]:
    """The job ends, or continues if the killed worker was idle."""
    before = landed(table)
    return lambda: driver.poll() is not None or landed(table) > before


@pytest.mark.skipif(not IS_FULL, reason="with `make proof`; tests/pipeline/delta dies between any two steps")
@pytest.mark.timeout(4 * PATIENCE_S)
def test_events_land_once_each_while_everything_is_killed(
    request: pytest.FixtureRequest,
    skylog_broker: BrokerProcess,
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SKYLOG_AUDIT_DIR", str(tmp_path / "audit"))
    bootstrap, topic = skylog_broker.bootstrap, f"million-{uuid.uuid4().hex[:8]}"
    Admin(bootstrap).create_topic(topic, partitions=2)
    fill(bootstrap, topic)
    warehouse, output = f"{place}/warehouse", tmp_path / "output"
    table = f"{warehouse}/{topic}"
    drawn = chance()
    for victim in drawn.sample(VICTIMS, KILLS):
        with job(bootstrap, topic, warehouse, output) as driver:
            ready, what = moment(table, drawn)
            wait_until(ready, what, PATIENCE_S)
            assert driver.poll() is None, output.read_text()
            kill(driver, victim)
            wait_until(noticed(driver, table), "the job to notice", PATIENCE_S)
        assert landed(table) < EVENTS
    with job(bootstrap, topic, warehouse, output) as driver:
        assert driver.wait(PATIENCE_S) == 0, output.read_text()
    check(request.getfixturevalue("spark"), bootstrap, topic, table)  # not before: one JVM at a time


def check(spark: SparkSession, bootstrap: str, topic: str, table: str) -> None:
    counted = "count(*), count(DISTINCT id), count(DISTINCT (_partition, _offset))"
    options = dict(Table(table).storage.options)
    assert query(table, f"SELECT {counted} FROM t", storage_options=options) == [(EVENTS,) * 3]
    (row,) = Table(table).read(spark).selectExpr("count(*)", "count(DISTINCT id)").collect()
    assert tuple(row) == (EVENTS, EVENTS)
    command = ["audit", "verify", "--topic", topic, "--tiers", "produced,stored,landed", "--bootstrap", bootstrap]
    result = CliRunner().invoke(app, [*command, "--wait", "30"])
    assert result.exit_code == 0, result.output
