"""A million events (with `make proof`) are counted exactly while driver, JVM and workers are killed at random."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from skylog import Admin
from skylog.spark.session import make_active
from skylog.testing import BrokerProcess
from tests.proof import IS_FULL, proof
from tests.spark.chance import chance
from tests.spark.jobs.visits.databases import Contents, contents, wait_for

EVENTS = proof(1_000_000, 100_000)
KILLS = proof(5, 2)
BATCH = EVENTS // 60  # small, so that there is something left to do after every kill
COUNTED = EVENTS * 99 // 100
ORGANISATIONS, DAYS = 10, 3
MAY_1_S = 1_714_521_600
PATIENCE_S = 300


@pytest.fixture(scope="module")
def million(spark_session: SparkSession, skylog_broker: BrokerProcess) -> str:
    """The topic. Event n is of organisation n % 10 and day n % 3; every hundredth is none."""
    topic = f"million-{uuid.uuid4().hex[:8]}"
    Admin(skylog_broker.bootstrap).create_topic(topic, 4, configs={"retention.ms": "-1"})  # its time is long ago
    event = f"""'{{"event": "page.view", "attributes": {{"org_id": ' || id % {ORGANISATIONS} || '}}}}'"""
    make_active(spark_session)
    rows = spark_session.range(0, EVENTS, 1, 4).selectExpr(
        f"CASE WHEN id % 100 = 99 THEN 'no event' ELSE {event} END AS value",
        "CAST(id AS STRING) AS key",
        f"TIMESTAMP_SECONDS({MAY_1_S} + 86400 * (id % {DAYS}) + id % 86400) AS timestamp",
    )
    writer = rows.write.format("skylog").option("kafka.bootstrap.servers", skylog_broker.bootstrap)
    writer.option("topic", topic).mode("append").save()
    return topic


def expected() -> Contents:
    found: Counter[tuple[str, str]] = Counter()
    for number in range(EVENTS):
        if number % 100 != 99:
            found[str(number % ORGANISATIONS), f"2024-05-0{1 + number % DAYS}"] += 1
    return dict(found)


@contextmanager
def job(bootstrap: str, topic: str, database: str, table: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "skylog.cli.main", "pipeline", "run", "visits", topic, "--bootstrap", bootstrap]
    command += ["--database", database, "--table", table, "--once", "--max-offsets", str(BATCH)]
    command += ["--master", "local[2,2]", "--conf", "spark.driver.memory=1g"]
    with log.open("ab") as output:
        driver = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        yield driver
    finally:
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)  # also what its own death has left
        driver.wait()


def processes_below(pid: int) -> dict[int, str]:
    """Its descendants, by what they are."""
    found = {}
    lists = [thread.read_text() for thread in Path(f"/proc/{pid}/task").glob("*/children")]  # each has its own
    for child in (int(number) for numbers in lists for number in numbers.split()):
        found[child] = Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
        found.update(processes_below(child))
    return found


def victim(driver: int, kind: str, drawn: random.Random) -> int | None:
    """The driver's Python, its JVM, or one of Spark's Python processes; None where there is none at the moment."""
    if kind == "driver":
        return driver
    try:
        below = processes_below(driver)
    except OSError:
        return None  # somebody has ended while we looked
    marks = {"jvm": "org.apache.spark.deploy", "worker": "pyspark.daemon"}
    found = [pid for pid, command in below.items() if marks[kind] in command]
    return drawn.choice(found) if found else None


@pytest.mark.skipif(not IS_FULL, reason="with `make proof`")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["postgres", "mongo"])
def test_events_are_counted_once_whoever_is_killed(
    skylog_broker: BrokerProcess, million: str, request: pytest.FixtureRequest, kind: str, table: str, tmp_path: Path
) -> None:
    database: str = request.getfixturevalue(kind)
    log = tmp_path / "log"

    def counted() -> int:
        return sum(contents(database, table).values())

    kinds = ["driver", "jvm", "worker"]
    drawn = chance()
    kinds = drawn.sample([*kinds, *drawn.choices(kinds, k=2)], KILLS)
    for number, target in enumerate(kinds):
        enough = max(counted(), number * EVENTS // (KILLS + 2)) + drawn.randrange(1, 3 * BATCH)
        with job(skylog_broker.bootstrap, million, database, table, log) as driver:
            wait_for(lambda: counted() >= enough or driver.poll() is not None, f"{enough} in {table}", PATIENCE_S)  # noqa: B023
            assert driver.poll() is None, log.read_text()[-3000:]
            time.sleep(drawn.random())  # anywhere in a batch
            pid = wait_for(lambda: victim(driver.pid, target, drawn), f"a {target}", PATIENCE_S)  # noqa: B023
            assert pid is not None
            assert counted() < COUNTED, "it has come to its end too soon to be killed"
            os.kill(pid, signal.SIGKILL)
            if target == "jvm":
                assert driver.wait(PATIENCE_S) != 0
            elif target == "worker":
                after = counted()
                wait_for(lambda: counted() > after or driver.poll() is not None, "what becomes of it", PATIENCE_S)  # noqa: B023
    with job(skylog_broker.bootstrap, million, database, table, log) as driver:
        assert driver.wait(PATIENCE_S) == 0, log.read_text()[-3000:]
    assert contents(database, table) == expected()
