"""Kafka Streams 4.x with processing.guarantee=exactly_once_v2, killed in the middle of its work.

A word count with a store and a repartition topic. Every word goes out with each of its counts, so a read_committed
reader must find 1, 2, 3, … for each word: a number that is missing, repeated or out of order is a lost or a repeated
step of some transaction.
"""

from __future__ import annotations

import subprocess
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Self

import pytest

from skylog.client import Admin, Connection, PartitionReader
from skylog.testing import produce, wait_until
from tests.proof import proof
from tests.seeds import seed

from .contract import MakeTopic
from .peers.installation import JAVA_VERSIONS, NotAvailable, java_classpath

PARTITIONS = 3
LINES = proof(60_000, 4000)
KILLS = proof(12, 1)
INSTANCES = proof(2, 1)
PATIENCE_S = 120.0
STOP_S = 60.0


@pytest.fixture(scope="module")
def classpath() -> str:
    try:
        return java_classpath(Path(__file__).parent / "streams", "kafka-streams", JAVA_VERSIONS[-1])
    except NotAvailable as reason:
        pytest.skip(f"no kafka-streams {JAVA_VERSIONS[-1]}: {reason}")


class WordCount:
    """One instance of the application, a process that can be killed and started again."""

    def __init__(self, classpath: str, arguments: list[str], folder: Path, instance: str) -> None:
        flags = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        flags.append("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        self._command = ["java", *flags, "-cp", classpath, "WordCount", *arguments]
        self._instance = instance
        self._folder = folder
        self._state = folder / f"{instance}-state"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        command = [*self._command, str(self._state), self._instance]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)

    @property
    def _log(self) -> Path:
        return self._folder / f"{self._instance}.log"

    def check(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, f"the application ended: {self._log.read_text()[-4000:]}"

    def kill(self) -> None:
        """End the process with SIGKILL, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def move(self) -> None:
        """Go on without the files of the last process, as on another machine, and with another transactional id."""
        self._state = self._folder / f"{self._instance}-state-{uuid.uuid4().hex[:8]}"

    def stop(self) -> None:
        """End the process as a user would, and wait for it."""
        assert self._process is not None
        self._process.communicate(timeout=STOP_S)
        assert self._process.returncode == 0, self._log.read_text()[-4000:]


class Output:
    """The counts of each word that a read_committed reader has found, in their order."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        connection = Connection(bootstrap)
        self._admin = Admin(connection)
        self._partitions = self._admin.describe_topic(topic).topic_partitions
        self._reader = PartitionReader(connection, dict.fromkeys(self._partitions, 0))
        self.counts: defaultdict[str, list[int]] = defaultdict(list)
        self.total = 0

    def close(self) -> None:
        self._reader.close()

    def read(self) -> int:
        """Take what has been committed since the last call. Return how many counts there are."""
        for message in self._reader.read():
            assert message.key is not None
            assert message.value is not None
            self.counts[message.key.decode()].append(int(message.value))
            self.total += 1
        return self.total


@pytest.fixture
def output(bootstrap: str, make_topic: MakeTopic) -> Iterator[tuple[str, Output]]:
    topic = make_topic(partitions=PARTITIONS)
    found = Output(bootstrap, topic)
    yield topic, found
    found.close()


def fill(bootstrap: str, topic: str) -> Counter[str]:
    """Write the lines. Return how often each word is in them."""
    lines = [f"a{number % 7} b{number % 11} c{number % 13}" for number in range(LINES)]
    for partition in range(PARTITIONS):
        produce(bootstrap, topic, lines[partition::PARTITIONS], partition=partition)
    return Counter(word for line in lines for word in line.split())


@pytest.mark.timeout(1800)
def test_a_word_count_is_exact_although_its_processes_are_killed(
    classpath: str, bootstrap: str, make_topic: MakeTopic, output: tuple[str, Output], tmp_path: Path
) -> None:
    source, (target, found) = make_topic(partitions=PARTITIONS), output
    expected = fill(bootstrap, source)
    chance = Random(seed())
    arguments = [bootstrap, f"words-{uuid.uuid4().hex[:8]}", source, target]
    with ExitStack() as stack:
        names = [f"instance-{number}" for number in range(INSTANCES)]
        instances = [stack.enter_context(WordCount(classpath, arguments, tmp_path, name)) for name in names]

        def wait_for(count: int) -> None:
            def has_come() -> bool:
                for each in instances:
                    each.check()
                return found.read() >= count

            wait_until(has_come, f"{count} counts", PATIENCE_S)

        for left in range(KILLS, 0, -1):
            wait_for(found.total + chance.randrange(1, (expected.total() - found.total) // (left + 1)))
            assert found.total < expected.total(), "the kill comes too late to prove anything"
            victim = chance.choice(instances)
            victim.kill()
            if chance.random() < 0.3:
                victim.move()
            victim.start()
        wait_for(expected.total())
        for each in instances:
            each.stop()
    found.read()  # what is too much
    assert found.counts == {word: [*range(1, count + 1)] for word, count in expected.items()}
