"""A million events go through every kind of job while its processes are killed: each is in the results once.

All of it is for `make proof`. The short form is in tests/pipeline/delta and tests/pipeline/databases, where processes
die between any two steps of a commit. SKYLOG_PROOF_EVENTS=100000 takes fewer events.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from skylog.testing import BrokerProcess
from tests.pipeline.databases.servers import wait_for
from tests.pipeline.delta.conftest import bucket, s3
from tests.pipeline.kills.killable import VICTIMS, KillableJob
from tests.pipeline.kills.source import BATCH, EVENTS, fill
from tests.pipeline.kills.targets import Landed, OwnDatabase, OwnTable, OwnTopic, OwnUpserts, Target, Visits
from tests.pipeline.standalone.cluster import StandaloneCluster
from tests.proof import IS_FULL
from tests.spark.chance import chance

__all__ = ["bucket", "s3"]

KILLS = 5
RUNS = KILLS + 4
PATIENCE_S = 1800  # only a hang takes this long, on however busy a machine

pytestmark = [pytest.mark.skipif(not IS_FULL, reason="with `make proof`"), pytest.mark.timeout(4 * PATIENCE_S)]


@pytest.fixture(scope="module")
def source(skylog_broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The topic of the events."""
    topic = f"million-{uuid.uuid4().hex[:8]}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SKYLOG_AUDIT_DIR", str(tmp_path_factory.mktemp("audit")))
        fill(skylog_broker.bootstrap, topic)
    return topic


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(
    params=[
        *("land-directory", "land-store", "table-directory", "table-store", "upsert-directory", "upsert-store"),
        *("topic", "database-sqlite", "database-postgres", "visits-postgres", "visits-mongo"),
    ]
)
def target(request: pytest.FixtureRequest, skylog_broker: BrokerProcess, source: str, tmp_path: Path) -> Target:
    bootstrap = skylog_broker.bootstrap
    job, _, where = request.param.partition("-")
    if job == "topic":
        return OwnTopic(bootstrap, source, tmp_path)
    into: str = {
        "directory": lambda: str(tmp_path),
        "store": lambda: request.getfixturevalue("bucket"),
        "sqlite": lambda: f"sqlite:///{tmp_path / 'own.db'}",
        "postgres": lambda: request.getfixturevalue("postgres"),
        "mongo": lambda: request.getfixturevalue("mongo"),
    }[where]()
    match job:
        case "land":
            return Landed(bootstrap, source, into)
        case "table":
            return OwnTable(job, source, tmp_path, f"{into}/own")
        case "upsert":
            return OwnUpserts(job, source, tmp_path, f"{into}/own")
        case "database":
            return OwnDatabase(source, tmp_path, into)
    return Visits(source, into)


def strike(job: KillableJob, target: Target, victim: str, drawn: random.Random) -> bool:
    """Kill a process at any moment of a batch. Return False if the job has ended before."""
    enough = min(target.done() + drawn.randrange(1, 2 * BATCH), target.total - BATCH)
    wait_for(lambda: target.done() >= enough or not job.is_running, f"{enough} events", PATIENCE_S)
    time.sleep(drawn.random())
    is_killed = False
    while not is_killed and job.is_running:
        is_killed = job.kill(victim, drawn)
        time.sleep(0 if is_killed else 0.05)  # there may be no such process now
    at = target.done()
    wait_for(lambda: target.done() > at or not job.is_running, f"what follows a killed {victim}", PATIENCE_S)
    return is_killed


def test_each_event_counts_once_although_processes_are_killed(
    target: Target,
    cluster: StandaloneCluster,
    skylog_broker: BrokerProcess,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    drawn = chance()
    victims = drawn.sample([*VICTIMS, drawn.choice(VICTIMS)], KILLS)
    arguments = [*target.arguments(), "--max-offsets", str(BATCH), "--bootstrap", skylog_broker.bootstrap]
    killed: list[tuple[str, int]] = []
    code = None
    for _ in range(RUNS):
        with KillableJob(arguments, cluster, tmp_path, tmp_path / "log") as job:
            while victims and job.is_running:
                assert target.done() < target.total, f"it ended before {victims} were killed, after {killed}"
                if strike(job, target, victims[0], drawn):
                    killed.append((victims.pop(0), target.done()))
            if not victims:
                code = job.wait(PATIENCE_S)
        if code == 0:
            break
    assert code == 0, job.log()
    assert len(killed) == KILLS
    print(f"{EVENTS} events, killed: {killed}")
    target.check(request.getfixturevalue("spark"))  # not before: it starts a JVM
