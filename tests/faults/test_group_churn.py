"""Groups of 1, 3, 10 and 50 members over 100 partitions, whose members join, leave, die and freeze at random.

Another group, of 4, uses the consumer protocol, and in `make proof` one more, of Java. All live at once, on one broker
that is killed and started again in the middle. Whatever happens: a partition has one owner at most, has one again
within the session timeout, nothing is skipped, a member that was thrown out cannot commit, and no committed offset goes
back.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.process import BrokerProcess
from tests.broker.raw import ClosedByBrokerError
from tests.clients.peers.installation import JAVA_VERSIONS, java_classpath
from tests.groups.client import GroupClient
from tests.groups.ledger import Ledger
from tests.patience import patience
from tests.proof import IS_FULL, proof
from tests.seeds import seed

PARTITIONS = 100
SESSION_SECONDS = 6.0
SETTLE_SECONDS = SESSION_SECONDS + 6.0  # the session, and a rebalance of fifty consumers on a busy machine
FREEZE_SECONDS = SESSION_SECONDS + 2.5
SIZES = {"one": (1, 1), "three": (3, 1), "ten": (2, 5), "fifty": (5, 10), "reconciled": (2, 2)}
"""Processes, and members in each."""
JAVA = "java"
if IS_FULL:
    SIZES[JAVA] = (2, 2)
CONFIGS: dict[str, dict[str, Any]] = {
    "one": {"partition.assignment.strategy": "range"},
    "three": {"partition.assignment.strategy": "roundrobin"},
    "ten": {"partition.assignment.strategy": "cooperative-sticky"},
    "fifty": {"partition.assignment.strategy": "cooperative-sticky"},
    "reconciled": {"group.protocol": "consumer", "session.timeout.ms": None, "heartbeat.interval.ms": None},
    JAVA: {},
}
SETTINGS = {  # of the consumer protocol, in which the broker has the timeouts
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "700",
    "group.consumer.heartbeat.interval.ms": "700",
}
WORKER = Path(__file__).parents[1] / "groups" / "churn_worker.py"
TOPIC = "churn"


def _worker_of(group: str) -> list[str]:
    if group != JAVA:
        return [sys.executable, str(WORKER)]
    classpath = java_classpath(Path(__file__).parents[1] / "clients" / "java", "kafka-clients", JAVA_VERSIONS[-1])
    return ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath, "ChurnWorker"]


class Crew:
    """A process with members of a group. Its members are told apart by the crew's number and their own."""

    def __init__(self, bootstrap: str, group: str, number: int, ledger: Ledger) -> None:
        self._group, self._number, self._ledger = group, number, ledger
        self.members: list[str] = []
        self.started: set[str] = set()  # also those that leave, which may not be done with that
        self._count = 0
        command = [*_worker_of(group), bootstrap, group, TOPIC]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):  # the last one of a killed process may be cut
                self._ledger.note(json.loads(line))

    def _tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def start(self) -> None:
        self._count += 1
        name = f"{self._group}-{self._number}-{self._count}"
        self.members.append(name)
        self.started.add(name)
        self._tell(f"start {name} " + json.dumps(CONFIGS[self._group]))

    def stop(self) -> None:
        self._tell(f"stop {self.members.pop(0)}")

    def kill(self) -> None:
        self.process.kill()
        self._ledger.gone(self.started, time.monotonic())
        self._end()

    def freeze(self) -> float:
        self.process.send_signal(signal.SIGSTOP)
        return time.monotonic()

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def leave(self) -> None:
        while self.members:
            self.stop()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._end()

    def _end(self) -> None:
        self.process.wait(60)
        self._reader.join(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


class Churn(threading.Thread):
    """One group and what happens to it, step by step. `settled` has the seconds after each change."""

    def __init__(self, bootstrap: str, group: str, seed: int) -> None:
        super().__init__(name=group, daemon=True)
        self.group = group
        self.ledger = Ledger(PARTITIONS)
        self.settled: list[tuple[str, float]] = []
        self.failure: BaseException | None = None
        self.restarted = threading.Event()
        self.halfway = threading.Event()
        self._address = bootstrap
        self._random = random.Random(f"{seed}/{group}")
        self._numbers = iter(range(1000))
        self._crews: list[Crew] = []

    def run(self) -> None:
        try:
            crews, members = SIZES[self.group]
            self._crews = [self._new_crew() for _ in range(crews)]
            for crew in self._crews:
                for _ in range(members):
                    crew.start()
            self._settle("start")
            actions: list[Callable[[], None]] = [self._join, self._leave, self._kill, self._freeze]
            self._random.shuffle(actions)
            actions = actions[: proof(len(actions), 2)]  # another two for each group
            for step, action in enumerate(actions):
                if step == len(actions) // 2:
                    self.halfway.set()
                    assert self.restarted.wait(patience(60))
                    self._settle("broker killed and started")
                action()
                self._settle(action.__name__.strip("_"))
        except BaseException as failure:
            self.failure = failure
        finally:
            self.halfway.set()

    def _new_crew(self) -> Crew:
        return Crew(self._address, self.group, next(self._numbers), self.ledger)

    def _settle(self, after: str) -> None:
        began = time.monotonic()
        missing_since = began
        while True:
            missing = self.ledger.missing()
            now = time.monotonic()
            if missing:
                missing_since = now
            elif now - missing_since > 1.5:
                break
            assert now - began < patience(SETTLE_SECONDS + 1.5), f"{self.group}: after {after} nobody owns {missing}"
            time.sleep(0.05)
        self.settled.append((after, missing_since - began))

    # -- what happens

    def _crew(self) -> Crew:
        return self._random.choice([crew for crew in self._crews if crew.members])

    def _join(self) -> None:
        self._crew().start()

    def _leave(self) -> None:
        crew = self._crew()
        crew.start()
        crew.stop()

    def _kill(self) -> None:
        crew = self._crew()
        count = len(crew.members)
        self._crews.remove(crew)
        crew.kill()
        fresh = self._new_crew()
        self._crews.append(fresh)
        for _ in range(count):
            fresh.start()

    def _freeze(self) -> None:
        """Longer than the session: the others take over, or, where there are none, it comes back by itself."""
        crew = self._crew()
        frozen_at = crew.freeze()
        self.ledger.gone(crew.started, frozen_at)
        if len(self._crews) > 1:
            self._settle("freeze")
        remaining = frozen_at + FREEZE_SECONDS - time.monotonic()
        if remaining > 0:
            threading.Event().wait(remaining)
        crew.thaw()

    def end(self) -> None:
        for crew in self._crews:
            crew.leave()

    def abandon(self) -> None:
        for crew in self._crews:
            if crew.process.poll() is None:
                crew.process.kill()


class Produced(threading.Thread):
    """Messages to all partitions, a few hundred a second, until told to stop."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "log_level": 0})
        self.stopping = threading.Event()
        self.failed: list[Any] = []

    def run(self) -> None:
        number = 0
        while not self.stopping.wait(0.2):
            for _ in range(60):
                partition = number % PARTITIONS
                self._producer.produce(TOPIC, b"%d" % number, partition=partition, on_delivery=self._on_delivery)
                number += 1
            self._producer.poll(0)
        assert self._producer.flush(30) == 0

    def _on_delivery(self, error: Any, _: Any) -> None:
        if error is not None:
            self.failed.append(error)


class Watch(threading.Thread):
    """Looks at the committed offsets of every group again and again: none may go back."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self.stopping = threading.Event()
        self.went_back: list[str] = []
        self.looks = 0
        self._highest: dict[tuple[str, int], int] = {}

    def run(self) -> None:
        while not self.stopping.wait(0.5):
            for group in SIZES:
                for partition, offset in self.committed(group).items():
                    before = self._highest.get((group, partition), -1)
                    if offset < before:
                        self.went_back.append(f"{group} {partition}: {before} to {offset}")
                    self._highest[group, partition] = offset
                    self.looks += 1

    def committed(self, group: str) -> dict[int, int]:
        """By partition; empty while the broker is away."""
        try:
            with GroupClient(self._port) as client:
                client.find(group)
                return {partition: offset for (_, partition), (offset, _) in client.committed(group).items()}
        except (ConnectionError, ClosedByBrokerError):
            return {}


@pytest.fixture
def lone_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", SETTINGS) as process:
        yield process
        assert not process.tracebacks()


def end_offsets(bootstrap: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    try:
        return {
            partition: consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=20)[1]
            for partition in range(PARTITIONS)
        }
    finally:
        consumer.close()


def wait_until_all_is_committed(churns: list[Churn], watch: Watch, ends: dict[int, int]) -> None:
    deadline = time.monotonic() + patience(20)
    behind: dict[str, dict[int, int | None]] = {churn.group: dict(ends) for churn in churns}
    while behind:
        for group in list(behind):
            committed = watch.committed(group)
            behind[group] = {key: committed.get(key) for key, end in ends.items() if end and committed.get(key) != end}
            if not behind[group]:
                del behind[group]
        assert not behind or time.monotonic() < deadline, f"committed, instead of {ends}: {behind}"
        time.sleep(0.2)


@pytest.mark.timeout(600)
def test_groups_under_churn_keep_one_owner_for_each_partition_and_skip_nothing(lone_broker: BrokerProcess) -> None:
    broker = lone_broker
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(20)
    produced, watch = Produced(broker.bootstrap), Watch(broker.port)
    origin = seed()
    churns = [Churn(broker.bootstrap, group, origin) for group in SIZES]
    threads = [produced, watch, *churns]
    for thread in threads:
        thread.start()
    try:
        for churn in churns:
            assert churn.halfway.wait(patience(120))
        broker.kill()
        broker.start()
        for churn in churns:
            churn.restarted.set()
        for churn in churns:
            churn.join(patience(150))
        for churn in churns:
            if churn.failure is not None:
                raise churn.failure
        assert watch.is_alive(), "it has seen nothing since it failed"
        produced.stopping.set()
        produced.join(40)
        ends = end_offsets(broker.bootstrap)
        wait_until_all_is_committed(churns, watch, ends)
        for churn in churns:
            churn.end()
    finally:
        for churn in churns:
            churn.restarted.set()
            churn.abandon()
        for stopping in (produced.stopping, watch.stopping):
            stopping.set()
        watch.join(30)
    for churn in churns:
        ledger = churn.ledger
        refused = Counter(code for _, _, code in ledger.refused)
        print(churn.group, ledger.rebalances, "assignments; commits refused by code:", dict(refused), churn.settled)
        print("members that waited for a commit, from, to, error:", ledger.slow)
        assert not ledger.errors
        assert not ledger.overlaps()
        assert not ledger.commits_of_strangers()
        assert not ledger.disowned()
        assert not ledger.unread(ends)
    assert not watch.went_back
    assert watch.looks > 1000
    assert not produced.failed
    assert sum(ends.values()) > 1000
