"""A web application's events while the broker dies under them, and what the audit says of it afterwards.

Everything is real: the broker a process that is killed, the events fired by threads that serve requests, the group that
reads them, and the verdict that of `skylog audit` on the command line.
"""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from skylog import Admin, Consumer, Producer
from skylog.audit import ConsumerAudit, ProducerAudit
from skylog.clock import SystemClock
from skylog.events import EventLog
from skylog.testing import BrokerProcess, wait_until
from tests.cli.commands import run_skylog
from tests.seeds import seed

TOPIC = "blog_log"
GROUP = "recommendations"
MINUTE_MS = 60_000


class QuickClock(SystemClock):
    """A clock on which a minute takes a second, so that a short test has many windows."""

    def __init__(self) -> None:
        self._began_ms = int(time.time() * 1000)

    def now_ms(self) -> int:
        now_ms = int(time.time() * 1000)
        return self._began_ms - 30 * MINUTE_MS + (now_ms - self._began_ms) * 60


def audit(command: str, bootstrap: str, *options: str) -> subprocess.CompletedProcess[str]:
    return run_skylog("audit", command, "--bootstrap", bootstrap, "--topic", TOPIC, *options)


def windows(bootstrap: str) -> list[dict[str, Any]]:
    shown = audit("show", bootstrap, "--json", "--grace", "0s")
    assert shown.returncode == 0, shown.stderr
    document = json.loads(shown.stdout)
    return list(document["windows"] if isinstance(document, dict) else document)


class Readers:
    """A group that reads until it is told to stop, and remembers the ids of what it has seen."""

    def __init__(self, bootstrap: str) -> None:
        self.seen: Counter[str] = Counter()
        self._consumer = Consumer(TOPIC, GROUP, bootstrap, audit=ConsumerAudit())
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._consumer as consumer:
            for message in consumer:
                self.seen[message.json()["id"]] += 1

    def stop(self) -> None:
        self._consumer.stop()
        self._thread.join(60)
        assert not self._thread.is_alive()


class Website:
    """Threads that serve requests, with five events in each, until told to stop.

    They take turns, so that events are sent in the order of their times. The audit places a batch by the times in its
    header, and on this clock a request that is held up for a second would mix minutes in it: see docs/audit.md.
    """

    def __init__(self, events: EventLog) -> None:
        self._events = events
        self._turn = threading.Lock()
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._serve, args=(user,), daemon=True) for user in range(4)]
        for thread in self._threads:
            thread.start()

    def _serve(self, user: int) -> None:
        while not self._stopping.wait(0.002):
            with self._turn, self._events.request():
                for number in range(5):
                    self._events.fire("post.show", user, number=number)

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)


def test_the_books_balance_after_the_broker_was_killed_under_the_stream(tmp_path: Path) -> None:
    dice = random.Random(seed())
    with BrokerProcess(tmp_path / "data", {"num.partitions": "3"}) as broker:
        Admin(broker.bootstrap).create_topic(TOPIC)
        producer = Producer(broker.bootstrap, audit=ProducerAudit("blog", journal_dir=tmp_path / "journal"))
        events = EventLog(producer, TOPIC, "blog", clock=QuickClock(), flush_timeout_s=60)
        readers = Readers(broker.bootstrap)
        website = Website(events)
        try:
            for _ in range(3):
                enough = len(readers.seen) + 1000
                wait_until(lambda: len(readers.seen) > enough, "events to flow", seconds=60)  # noqa: B023
                broker.kill()
                time.sleep(dice.uniform(0, 0.5))
                broker.start()
        finally:
            website.stop()
        events.close()
        stats = events.stats()
        assert (sum(stats.dropped.values()), stats.buffered) == (0, 0)
        wait_until(lambda: len(readers.seen) == stats.fired, "every event to be read", seconds=60)
        readers.stop()
        producer.close()

        tiers = "produced,stored,consumed"
        verified = audit("verify", broker.bootstrap, "--group", GROUP, "--tiers", tiers, "--wait", "60")
        assert verified.returncode == 0, f"{verified.stdout}\n{verified.stderr}"
        rows = windows(broker.bootstrap)
    assert len(rows) >= 3
    assert {row["verdict"] for row in rows} == {"complete"}
    assert [row for row in rows if not row["produced"] == row["stored"] == row["consumed"][GROUP]] == []
    assert sum(row["produced"] for row in rows) == stats.fired


def send(producer: Producer, numbers: Iterable[int]) -> None:
    """Messages of a minute that is over, so that the audit judges it at once."""
    with producer.batch():
        for number in numbers:
            producer.send(TOPIC, str(number), timestamp_ms=int(time.time() * 1000) - 5 * MINUTE_MS)


@pytest.fixture
def balanced(tmp_path: Path) -> Any:
    """A broker with 100 audited messages that an audited group has read; its producer still open."""
    with (
        BrokerProcess(tmp_path / "data") as broker,
        Producer(broker.bootstrap, audit=ProducerAudit("blog", journal_dir=tmp_path / "journal")) as producer,
    ):
        send(producer, range(100))
        with Consumer(TOPIC, GROUP, broker.bootstrap, audit=ConsumerAudit()) as consumer:
            for message in consumer:
                if message.offset == 99:
                    break
        assert audit("verify", broker.bootstrap, "--group", GROUP, "--wait", "60").returncode == 0
        yield broker, producer


def assert_found(broker: BrokerProcess, verdict: str) -> None:
    """`verify` fails, and names what was found."""

    def named() -> bool:
        verified = audit("verify", broker.bootstrap, "--group", GROUP, "--grace", "0s")
        return verified.returncode == 1 and verdict in verified.stdout

    wait_until(named, f"the verdict '{verdict}'", seconds=60)


def test_a_message_that_somebody_sends_again_is_a_duplicate(balanced: Any) -> None:
    broker, _ = balanced
    with Producer(broker.bootstrap) as unaudited:
        send(unaudited, range(3))
    assert_found(broker, "duplicated 3 (stored)")


def test_messages_that_a_group_skips_are_lost(balanced: Any) -> None:
    broker, producer = balanced
    send(producer, range(100, 110))
    with Consumer(TOPIC, GROUP, broker.bootstrap, audit=ConsumerAudit()) as consumer:
        consumer.seek(TOPIC, 0, 104)
        for message in consumer:
            if message.offset == 109:
                break
    assert_found(broker, f"lost 4 (group {GROUP})")


def test_messages_that_a_group_handles_again_are_duplicates(balanced: Any) -> None:
    broker, _ = balanced
    with Consumer(TOPIC, GROUP, broker.bootstrap, audit=ConsumerAudit()) as consumer:
        consumer.seek(TOPIC, 0, 93)
        for message in consumer:
            if message.offset == 99:
                break
    assert_found(broker, f"duplicated 7 (group {GROUP})")


def test_acknowledged_messages_that_the_disk_has_forgotten_are_lost(balanced: Any, tmp_path: Path) -> None:
    broker, producer = balanced
    for number in range(100, 120):
        send(producer, [number])  # a batch each
    broker.kill()
    [segment] = (tmp_path / "data" / f"{TOPIC}-0").glob("*.log")
    size_bytes = segment.stat().st_size
    with open(segment, "r+b") as file:
        file.truncate(size_bytes - 1)  # as after a power failure: the last batch is torn
    broker.start()
    assert_found(broker, "lost 1 (stored)")
