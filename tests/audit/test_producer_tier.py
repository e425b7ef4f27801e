"""The producer's tier: counts are published once, whichever process dies at any time.

`python -m tests.audit.test_producer_tier DIRECTORY` is a producer that counts until it is killed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from skylog.audit import AUDIT_TOPIC, ConsumerAudit, ProducerAudit, Report, Tier
from skylog.audit.journal import EXTENT_BYTES
from skylog.audit.producer_tier import ADOPTION_INTERVAL_S, REST_S, ProducedTier, default_journal_dir
from skylog.errors import ConfigError
from skylog.testing import ManualClock
from tests.broker.process import until
from tests.seeds import seed

if TYPE_CHECKING:
    from skylog.client import tier as contract

    def the_audits_implement_the_protocols_of_clients(produced: ProducerAudit, consumed: ConsumerAudit) -> None:
        """For the type checker: the contract of the clients is kept."""
        _producer: contract.ProducerTierFactory = produced
        _consumer: contract.ConsumerTierFactory = consumed


MINUTE_MS = 60_000
T = 28_000_000 * MINUTE_MS  # the start of a window


class AuditTopic:
    """Receives reports. `answer` decides for each whether it is stored, or None for no result yet; all by default."""

    def __init__(self, answer: Callable[[str], bool | None] = lambda _: True) -> None:
        self.answer = answer
        self.reports: list[Report] = []
        self.waiting: list[Callable[[bool], None]] = []

    def publish(self, topic: str, value: bytes, done: Callable[[bool], None]) -> None:
        assert topic == AUDIT_TOPIC
        report = Report.decode(value)
        outcome = self.answer(report.id)
        if outcome is not False:
            self.reports.append(report)
        if outcome is None:
            self.waiting.append(done)
        else:
            done(outcome)

    def answer_all(self, is_stored: bool = True) -> None:
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done(is_stored)

    def sums(self) -> dict[tuple[str, int], tuple[int, int, int]]:
        """Messages, bytes and uncertain messages by topic and window; a report that arrived twice counts once."""
        totals: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
        for report in {report.id: report for report in self.reports}.values():
            for row in report.counts:
                sums = {"messages": row.messages, "bytes": row.size_bytes, "uncertain": row.uncertain}
                totals[report.topic, row.start_ms].update(sums)
        return {key: (found["messages"], found["bytes"], found["uncertain"]) for key, found in totals.items()}


class Home:
    """A journal directory and a manual clock."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = ManualClock(T)

    def open(self, topic: AuditTopic) -> ProducedTier:
        return ProducerAudit("shop", journal_dir=self.directory, clock=self.clock).open_producer(topic.publish)

    def pass_interval(self, *tiers: ProducedTier) -> None:
        self.clock.advance_ms(5000)
        for tier in tiers:
            tier.tick()

    def files(self) -> list[Path]:
        return list(self.directory.glob("*"))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "audit")


def send(tier: ProducedTier, topic: str = "clicks", time_ms: int = T, count: int = 1) -> None:
    for _ in range(count):
        tier.sent(topic, time_ms)
        tier.acknowledged(topic, time_ms, time_ms, 100)


def test_what_was_acknowledged_is_published_by_topic_and_window(home: Home) -> None:
    audit_topic = AuditTopic()
    tier = home.open(audit_topic)
    for _ in range(3):
        send(tier, "clicks", T + 59_999)
        send(tier, "clicks", T + 60_000, 2)
        send(tier, "views", T)
    tier.sent("clicks", T)
    home.pass_interval(tier)
    assert audit_topic.sums() == {
        ("clicks", T): (3, 300, 0),
        ("clicks", T + MINUTE_MS): (6, 600, 0),
        ("views", T): (3, 300, 0),
    }
    report = audit_topic.reports[0]
    assert (report.tier, report.source, report.partition) == (Tier.PRODUCED, "shop", None)
    assert report.counts[0].end_ms == report.counts[0].start_ms + MINUTE_MS


def test_nothing_is_published_before_the_interval_has_passed_or_where_nothing_is_new(home: Home) -> None:
    audit_topic = AuditTopic()
    tier = home.open(audit_topic)
    send(tier)
    tier.tick()
    home.clock.advance_ms(4999)
    tier.tick()
    assert audit_topic.reports == []
    home.clock.advance_ms(1)
    tier.tick()
    home.pass_interval(tier)
    assert len(audit_topic.reports) == 1


def test_a_message_is_counted_under_the_time_it_is_stored_with(home: Home) -> None:
    audit_topic = AuditTopic()
    tier = home.open(audit_topic)
    tier.sent("clicks", T)
    tier.acknowledged("clicks", T, T + MINUTE_MS, 7)
    tier.sent("clicks", T)
    tier.acknowledged("clicks", T, -1, 7)
    tier.sent("clicks", T)  # in flight for ever
    tier.close()
    assert audit_topic.sums() == {("clicks", T): (1, 7, 1), ("clicks", T + MINUTE_MS): (1, 7, 0)}


def test_a_message_that_failed_is_counted_only_if_it_may_be_stored(home: Home) -> None:
    audit_topic = AuditTopic()
    tier = home.open(audit_topic)
    for may_be_stored in (True, False, True):
        tier.sent("clicks", T)
        tier.failed("clicks", T, may_be_stored=may_be_stored)
    tier.close()
    assert audit_topic.sums() == {("clicks", T): (0, 0, 2)}


def test_a_report_is_published_under_its_id_until_it_is_stored(home: Home) -> None:
    audit_topic = AuditTopic(lambda _: False)
    tier = home.open(audit_topic)
    tried: list[str] = []

    def refuse(report_id: str) -> bool:
        tried.append(report_id)
        return False

    audit_topic.answer = refuse
    send(tier, count=2)
    home.pass_interval(tier)
    send(tier, count=3)
    home.pass_interval(tier)
    home.pass_interval(tier)
    audit_topic.answer = lambda _: True
    home.pass_interval(tier)
    home.pass_interval(tier)
    assert len(tried) == 3
    assert set(tried) == {audit_topic.reports[0].id}
    assert [report.counts[0].messages for report in audit_topic.reports] == [2, 3]


def test_a_report_whose_answer_is_awaited_is_not_published_again(home: Home) -> None:
    audit_topic = AuditTopic(lambda _: None)
    tier = home.open(audit_topic)
    send(tier)
    home.pass_interval(tier)
    send(tier)
    home.pass_interval(tier)
    assert len(audit_topic.reports) == 1
    audit_topic.answer_all()
    home.pass_interval(tier)
    assert [report.counts[0].messages for report in audit_topic.reports] == [1, 1]


def test_closing_publishes_the_rest_and_removes_the_journal(home: Home) -> None:
    audit_topic = AuditTopic(lambda _: None)
    tier = home.open(audit_topic)
    send(tier, count=2)
    home.pass_interval(tier)
    send(tier, count=3)  # comes after the report in flight
    send(tier, "views")
    tier.close()
    while audit_topic.waiting:
        assert len(home.files()) == 1
        audit_topic.answer_all()
    assert home.files() == []
    assert audit_topic.sums() == {("clicks", T): (5, 500, 0), ("views", T): (1, 100, 0)}


def test_a_producer_that_counted_nothing_leaves_nothing(home: Home) -> None:
    home.open(AuditTopic()).close()
    assert home.files() == []


def test_what_could_not_be_published_is_published_by_the_next_producer_under_the_same_id(home: Home) -> None:
    failing = AuditTopic(lambda _: None)
    tier = home.open(failing)
    send(tier, count=4)
    tier.close()
    failing.answer_all(is_stored=False)
    (left,) = home.files()
    audit_topic = AuditTopic()
    heir = home.open(audit_topic)
    heir.tick()
    assert [report.id for report in audit_topic.reports] == [report.id for report in failing.reports]
    assert audit_topic.sums() == {("clicks", T): (4, 400, 0)}
    assert not left.exists()
    heir.close()
    assert home.files() == []


def test_a_successor_retries_until_everything_is_published(home: Home) -> None:
    dying = home.open(AuditTopic(lambda _: False))
    send(dying, count=4)
    dying.close()
    audit_topic = AuditTopic(lambda _: False)
    heir = home.open(audit_topic)
    heir.tick()
    assert len(home.files()) == 2
    audit_topic.answer = lambda _: True
    home.pass_interval(heir)
    assert len(home.files()) == 1
    assert audit_topic.sums() == {("clicks", T): (4, 400, 0)}


def test_one_of_many_concurrent_producers_adopts_a_dead_producers_journal(home: Home) -> None:
    for _ in range(10):
        dying = home.open(AuditTopic(lambda _: False))
        send(dying, count=3)
        dying.close()
    audit_topic = AuditTopic()
    heirs = [home.open(audit_topic) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(ProducedTier.tick, heirs))
    home.clock.advance_ms(int(ADOPTION_INTERVAL_S * 1000))  # one may have tried while another held the lock
    heirs[0].tick()
    assert len({report.id for report in audit_topic.reports}) == len(audit_topic.reports) == 10
    assert len(home.files()) == 4


def test_a_foreign_file_is_left_alone_with_one_warning(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    home.directory.mkdir()
    foreign = home.directory / "x.journal"
    foreign.write_text("hello" * 2000)
    tier = home.open(AuditTopic())
    tier.tick()
    home.clock.advance_ms(int(ADOPTION_INTERVAL_S * 1000))
    tier.tick()
    assert caplog.text.count("is ignored: ") == 1
    assert foreign.read_text() == "hello" * 2000


def test_threads_that_send_at_once_are_all_counted(home: Home) -> None:
    audit_topic = AuditTopic()
    tier = home.open(audit_topic)
    started = threading.Barrier(4)
    interval = sys.getswitchinterval()

    def work() -> None:
        started.wait()
        for number in range(20_000):
            tier.sent("clicks" if number % 3 else "views", T + number % 2 * MINUTE_MS)

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda _: work(), range(4)))
    finally:
        sys.setswitchinterval(interval)
    tier.close()
    assert sum(uncertain for _, _, uncertain in audit_topic.sums().values()) == 80_000


def test_the_slots_of_windows_that_are_over_are_used_again(home: Home) -> None:
    audit_topic = AuditTopic()
    tier = home.open(audit_topic)
    for _ in range(1000):
        send(tier, "clicks", home.clock.now_ms())
        home.clock.advance_ms(MINUTE_MS)
        tier.tick()
    assert home.files()[0].stat().st_size == EXTENT_BYTES
    assert len(audit_topic.sums()) == 1000
    assert set(audit_topic.sums().values()) == {(1, 100, 0)}


def test_a_slot_with_messages_in_flight_or_of_a_moment_ago_is_not_used_again(home: Home) -> None:
    tier = home.open(AuditTopic())
    tier.sent("clicks", T)
    send(tier, "views", T)
    home.clock.advance_ms(3 * MINUTE_MS)
    tier.tick()
    home.pass_interval(tier)
    assert list(tier._slots) == [("clicks", T // MINUTE_MS)]
    (_, rests), *_ = tier._resting
    send(tier, "shares", T)
    assert rests not in tier._slots.values()
    home.clock.advance_ms(int(REST_S * 1000))
    send(tier, "likes", T)
    assert rests in tier._slots.values()


def test_an_application_needs_a_name(tmp_path: Path) -> None:
    for name in ("", "x" * 1025):
        with pytest.raises(ConfigError, match="1 to 1024 bytes"):
            ProducerAudit(name, journal_dir=tmp_path)


def test_the_directory_is_found_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKYLOG_AUDIT_DIR", "/a")
    monkeypatch.setenv("XDG_STATE_HOME", "/b")
    monkeypatch.setenv("HOME", "/c")
    assert default_journal_dir() == Path("/a")
    monkeypatch.delenv("SKYLOG_AUDIT_DIR")
    assert default_journal_dir() == Path("/b/skylog/audit")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert default_journal_dir() == Path("/c/.local/state/skylog/audit")


# -- killed processes


def count_until_killed(directory: Path, origin: str) -> None:
    """Send, acknowledge and publish as fast as possible. The lengths of two files are the expected counts."""
    dice = random.Random(origin)
    sent, acknowledged, audit_topic = (
        os.open(directory / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT) for name in ("sent", "acknowledged", "topic")
    )
    waiting: list[Callable[[bool], None]] = []

    def publish(_: str, value: bytes, done: Callable[[bool], None]) -> None:
        if dice.random() < 0.2:
            done(False)
        else:
            os.write(audit_topic, value + b"\n")
            waiting.append(done)

    tier = ProducerAudit("shop", journal_dir=directory / "audit", interval_s=0.001).open_producer(publish)
    in_flight = 0
    while True:
        tier.sent("clicks", T)
        os.write(sent, b".")
        in_flight += 1
        while in_flight > dice.randrange(8):
            tier.acknowledged("clicks", T, T, 100)
            os.write(acknowledged, b".")
            in_flight -= 1
        if dice.random() < 0.1:
            tier.tick()
            while waiting and dice.random() < 0.8:
                waiting.pop()(dice.random() < 0.9)


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def test_producers_killed_at_any_moment_neither_lose_nor_double_counts(tmp_path: Path) -> None:
    kills, origin = 6, seed()
    dice = random.Random(origin)
    for kill in range(kills):
        enough = size(tmp_path / "acknowledged") + dice.randrange(300, 3000)
        command = [sys.executable, "-m", "tests.audit.test_producer_tier", str(tmp_path), f"{origin}/{kill}"]
        process = subprocess.Popen(command, cwd=Path(__file__).parents[2])
        until(lambda: size(tmp_path / "acknowledged") > enough, "counts")  # noqa: B023 # used in this turn
        process.send_signal(signal.SIGKILL)
        process.wait()
    audit_topic = AuditTopic()
    heir = ProducerAudit("shop", journal_dir=tmp_path / "audit").open_producer(audit_topic.publish)
    heir.tick()
    heir.close()
    assert list((tmp_path / "audit").iterdir()) == []
    lines = (tmp_path / "topic").read_bytes().splitlines()
    audit_topic.reports = [*(Report.decode(line) for line in lines), *audit_topic.reports]
    ((messages, size_bytes, uncertain),) = audit_topic.sums().values()
    # A process may die between counting and noting the truth: one message per kill.
    assert 0 <= messages - size(tmp_path / "acknowledged") <= kills
    assert 0 <= messages + uncertain - size(tmp_path / "sent") <= kills
    assert 0 <= messages * 100 - size_bytes <= 100 * kills
    assert uncertain <= 9 * kills
    assert len(audit_topic.reports) > 5 * kills


if __name__ == "__main__":
    count_until_killed(Path(sys.argv[1]), sys.argv[2])
