"""The peers as fixtures: each is skipped with the reason where it cannot be had."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from skylog.client import Admin, Connection
from skylog.testing import BrokerProcess
from tests.spark.peers.jars import NoJarsError, connector_jars, kafka_jars
from tests.spark.peers.kafka import KafkaProcess

ANSWER_S = 240
QUICK_CLEANING = {
    "log.cleaner.backoff.ms": "50",
    "log.flush.scheduler.interval.ms": "50",
    "log.flush.offset.checkpoint.interval.ms": "50",
}


class PeerDriver:
    """A process with a Spark session that knows the formats `kafka` and `skylog`."""

    def __init__(self, jars: list[Path], log: IO[bytes]) -> None:
        command = [sys.executable, "-m", "tests.spark.peers.driver", ",".join(map(str, jars))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)

    def ask(self, command: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"command": command, **arguments}), file=self._process.stdin, flush=True)
        has_answer, _, _ = select.select([self._process.stdout], [], [], ANSWER_S)
        if not has_answer:
            self._process.kill()  # a late answer would be taken for that to the next request
            raise AssertionError(f"no answer to {command} in {ANSWER_S} s")
        answer = json.loads(self._process.stdout.readline() or '{"error": "the driver has ended"}')
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@pytest.fixture(scope="session")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeerDriver]:
    try:
        jars = connector_jars()
    except NoJarsError as error:
        pytest.skip(str(error))
    with (tmp_path_factory.mktemp("peer") / "driver.log").open("wb") as log:
        driver = PeerDriver(jars, log)
        try:
            yield driver
        finally:
            driver.close()


@pytest.fixture(scope="session")
def broker() -> Iterator[BrokerProcess]:
    """A broker that compacts at once."""
    with BrokerProcess(settings=QUICK_CLEANING) as found:
        yield found


@pytest.fixture(scope="session")
def admin(broker: BrokerProcess) -> Admin:
    return Admin(Connection(broker.bootstrap))


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    """Apache Kafka."""
    try:
        jars = kafka_jars()
    except NoJarsError as error:
        pytest.skip(str(error))
    with KafkaProcess(jars, tmp_path_factory.mktemp("kafka")) as found:
        yield found
