"""`skylog demo`, as a user meets it: a broker, Spark and all jobs as processes; and the parts of it by themselves."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from skylog.audit import AUDIT_TOPIC, ConsumerAudit, Count, ProducerAudit, Report, Tier
from skylog.cli.demo.ending import Ending
from skylog.cli.demo.figures import Figures, Reader
from skylog.cli.demo.places import EVENTS, GROUPS, NEWSFEED, Places
from skylog.cli.demo.rising_pages import RisingPage
from skylog.cli.demo.settlement import is_balanced, print_settlement, settle
from skylog.cli.demo.summary import line, picture
from skylog.cli.demo.website import ORGANISATIONS, RISING_PAGE, Website
from skylog.cli.requirements import RequirementError, check_requirements
from skylog.client import Admin, Consumer, Producer
from skylog.testing import BrokerProcess, produce, wait_until

from ..conftest import HAS_SPARK
from ..proof import IS_FULL
from .conftest import SKYLOG, Skylog
from .terminal import in_terminal

needs_spark = pytest.mark.skipif(not HAS_SPARK, reason="pip install -e '.[spark]'")
patiently = pytest.mark.timeout(600)  # Spark takes its time on a machine that has much else to do
START_S = 120.0
END_S = 400.0
MARK = "SKYLOG_TEST_RUN"


# -- the website


def test_few_pages_and_organisations_have_most_of_the_views() -> None:
    website = Website(Random(1))
    views = [each for _ in range(20_000) for each in website.request(0) if each.event == "page.view"]
    pages = Counter(each.attributes["page"] for each in views)
    organisations = Counter(each.attributes["org_id"] for each in views)
    assert sum(count for _, count in pages.most_common(20)) > len(views) / 2
    assert organisations.keys() == set(ORGANISATIONS)
    assert organisations.most_common(1)[0][1] > 2 * len(views) / len(ORGANISATIONS)


def test_a_session_starts_once_and_goes_from_page_to_page() -> None:
    website = Website(Random(1))
    happened = [each for _ in range(5000) for each in website.request(0)]
    sessions: dict[str, list[str | None]] = {}
    for each in happened:
        seen = sessions.setdefault(each.attributes["session"], [])
        if each.event == "session.start":
            assert seen == []
        elif each.event == "page.view":
            assert each.attributes["referrer"] == (seen[-1] if seen else None)
            seen.append(each.attributes["page"])
    assert max(map(len, sessions.values())) > 6
    assert sum(each.event == "session.start" for each in happened) == len(sessions)


def test_a_page_rises_after_its_time() -> None:
    website = Website(Random(1), rises_after_s=20)

    def share(elapsed_s: float) -> float:
        pages = [each.attributes["page"] for _ in range(4000) for each in website.request(elapsed_s)]
        return pages.count(RISING_PAGE) / len(pages)

    assert share(19) < 0.01
    assert 0.05 < share(27) < 0.20
    assert share(60) > 0.20


# -- the end


@pytest.fixture
def signals() -> Iterator[None]:
    """Whoever hears of signals now does so again after the test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
def test_the_first_signal_asks_for_the_end_and_the_second_aborts() -> None:
    ending = Ending(None)
    ending.begin()
    assert not ending.wait(0)
    os.kill(os.getpid(), signal.SIGINT)
    assert ending.wait(10)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.usefixtures("signals")
def test_the_end_comes_after_the_seconds_that_were_asked_for_and_not_before() -> None:
    began = time.monotonic()
    soon, later = Ending(0.05), Ending(600)
    soon.begin()
    later.begin()
    assert soon.wait(60)
    assert 0.05 <= time.monotonic() - began < 30
    assert not later.wait(0)


# -- the judgement


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose topics `whole` and `short` 500 messages each have been through all tiers of but the landed one."""
    journals = tmp_path_factory.mktemp("journals")
    with BrokerProcess() as broker:
        admin = Admin(broker.bootstrap)
        admin.create_topic(AUDIT_TOPIC, 1)
        for topic in ("whole", "short"):
            admin.create_topic(topic, 1)
            audit = ProducerAudit("website", journal_dir=journals)
            with Producer(broker.bootstrap, audit=audit) as producer:
                for number in range(500):
                    producer.send(topic, str(number), timestamp_ms=1_700_000_000_000)
            with Consumer(topic, NEWSFEED, broker.bootstrap, audit=ConsumerAudit()) as consumer:
                left = 500
                deadline = time.monotonic() + 30
                while left and time.monotonic() < deadline:
                    left -= len(consumer.consume())
                assert not left
        yield broker


def land(bootstrap: str, topic: str, messages: int) -> None:
    """Say that a table has so many of the topic's 500 messages."""
    start_ms = 1_700_000_000_000 // 60_000 * 60_000
    counts = [Count(start_ms, start_ms + 60_000, messages, messages * 3)]
    report = Report(Tier.LANDED, topic, topic, counts, start_ms, partition=0, start_offset=0, end_offset=500)
    produce(bootstrap, AUDIT_TOPIC, [report.encode()])


def test_books_of_which_all_tiers_agree_are_balanced(
    audited: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    land(audited.bootstrap, "whole", 500)
    balances = settle(audited.bootstrap, "whole", NEWSFEED, since_ms=0, patience_s=30)
    print_settlement("whole", balances)
    assert is_balanced(balances)
    assert capsys.readouterr().out.splitlines()[2].split()[2:] == ["500", "500", "500", "500", "complete"]


def test_books_of_a_table_that_lacks_messages_are_not_balanced_and_say_so(
    audited: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    land(audited.bootstrap, "short", 497)
    balances = settle(audited.bootstrap, "short", NEWSFEED, since_ms=0, patience_s=8)
    print_settlement("short", balances)
    assert not is_balanced(balances)
    assert "lost 3 (landed in short)" in capsys.readouterr().out


def test_books_without_a_report_are_not_balanced(audited: BrokerProcess) -> None:
    assert not is_balanced(settle(audited.bootstrap, "no_such_topic", NEWSFEED, since_ms=0, patience_s=0))


# -- what is shown

FIGURES = Figures(
    elapsed_s=31.4,
    stored=15_700,
    stored_per_s=499.6,
    readers={NEWSFEED: Reader(15_690, 500.2, 10), "land": Reader(15_000, 480.0, 700)},
    visits=[("harbour-press", 5012)],
    rising=[RisingPage("/news/\x1b[31mcomet", 378, 9.2, 1)],
    files=12,
)


def test_a_line_has_rates_lag_and_the_first_of_each_ranking() -> None:
    assert line(FIGURES, "running") == (
        "  31 s  running: 15,700 events, 500/s; lag: newsfeed 10, land 700; files landed: 12; "
        "most visits: harbour-press 5,012; rising: /news/\\x1b[31mcomet 378 for 9"
    )


def test_the_picture_has_every_group_and_lets_no_page_drive_the_terminal() -> None:
    from rich.console import Console

    console = Console(width=100, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(picture(FIGURES, "running", ["north-mill shared /[bold]a"]))
    shown = console.export_text()
    for text in (*GROUPS, "15,690", "700", "harbour-press", "/news/\\x1b[31mcomet", "north-mill shared /[bold]a"):
        assert text in shown


def test_who_has_not_begun_is_behind_by_everything() -> None:
    whole = dict.fromkeys(GROUPS, Reader(100, 0.0, 0))
    assert Figures(1.0, 100, 0.0, whole, [], [], 0).behind == {}
    assert Figures(1.0, 100, 0.0, {**whole, "land": Reader(99, 0.0, 1)}, [], [], 0).behind == {"land": 1}
    assert Figures(1.0, 100, 0.0, {}, [], [], 0).behind == dict.fromkeys(GROUPS, 100)


# -- what can be wrong before it begins


@needs_spark
def test_without_java_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RequirementError, match="wants Java 17 or later, and there is none: install one"):
        check_requirements()


@needs_spark
def test_a_java_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(RequirementError, match=r'17 or later; .*bin/java says: openjdk version "11\.0\.2"'):
        check_requirements()


@needs_spark
def test_a_port_that_is_taken_is_named_with_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        command = [str(SKYLOG), "demo", "--port", str(port), "--data-dir", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"port {port} is taken; stop who listens there, or let --port 0 find a free one" in done.stderr
    assert "Traceback" not in done.stderr


# -- all of it


@dataclass
class Demo:
    """A demonstration that runs. `said` is what it has printed so far."""

    process: subprocess.Popen[bytes]
    output: Path
    mark: str

    @property
    def said(self) -> str:
        return self.output.read_text()

    def wait_for(self, text: str, seconds: float = START_S) -> None:
        def is_said() -> bool:
            assert text in self.said or self.process.poll() is None, f"it ended: {self.said}"
            return text in self.said

        wait_until(is_said, f"{text!r} in {self.said}", seconds)

    def wait_for_process(self, text: str) -> int:
        """The id of one that has `text` in its command line."""
        return wait_until(
            lambda: next((pid for pid, command in processes(self.mark).items() if text in command), 0), text, START_S
        )

    def bootstrap(self) -> str:
        self.wait_for("broker at ")
        return self.said.partition("broker at ")[2].partition(",")[0]


def processes(mark: str) -> dict[int, str]:
    """A demonstration, what was started by it, and by that: what still runs, by id."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (path / "environ").read_bytes():
                found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # it has ended just now, or is somebody else's
    return found


def wait_for_the_last_process(mark: str) -> None:
    try:
        wait_until(lambda: not processes(mark), "the end of all processes", 60)
    except AssertionError:
        pytest.fail(f"these have not ended: {processes(mark)}")


@contextmanager
def running_demo(data_dir: Path, *options: str) -> Iterator[Demo]:
    """`skylog demo` without a terminal; at the end nothing is left of it."""
    mark = uuid.uuid4().hex
    output = data_dir.parent / f"{mark}.out"
    command = [str(SKYLOG), "demo", "--port", "0", "--rate", "200", "--data-dir", str(data_dir), *options]
    with open(output, "wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, MARK: mark})
    demo = Demo(process, output, mark)
    try:
        yield demo
        wait_for_the_last_process(mark)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Demo, Places]:
    """A demonstration of eight seconds that has come to its end."""
    places = Places(tmp_path_factory.mktemp("demo") / "data")
    with running_demo(places.root, "--seconds", "8") as demo:
        demo.process.wait(START_S + END_S)
    return demo, places


@needs_spark
@patiently
def test_a_demonstration_ends_with_books_that_balance(ended: tuple[Demo, Places]) -> None:
    demo, _ = ended
    assert demo.process.returncode == 0, demo.said
    assert "balanced: produced = stored = consumed = landed" in demo.said
    [together] = [text.split()[1:5] for text in demo.said.splitlines() if text.startswith("together")]
    assert len(set(together)) == 1
    assert int(together[0].replace(",", "")) > 1000
    assert "Traceback" not in demo.said


@needs_spark
@patiently
def test_what_it_shows_at_the_end_can_be_looked_at(ended: tuple[Demo, Places]) -> None:
    demo, places = ended
    views = sqlite3.connect(places.visits).execute("SELECT sum(visits) FROM visits").fetchone()[0]
    import pyarrow.dataset

    table = pyarrow.dataset.dataset(places.table, partitioning="hive").to_table(columns=["event"])
    events = Counter(table["event"].to_pylist())
    [together] = [text.split()[1] for text in demo.said.splitlines() if text.startswith("together")]
    assert table.num_rows == int(together.replace(",", ""))
    assert views == events["page.view"] > 0
    assert {"page.view", "session.start", "page.share"} == events.keys()


@needs_spark
@patiently
@pytest.mark.skipif(not IS_FULL, reason="with `make proof`: a second demonstration, with Spark and all jobs")
def test_ctrl_c_ends_it_and_a_stranger_in_the_topic_is_found(ended: tuple[Demo, Places]) -> None:
    """In the directory of the run before, which it goes on with."""
    with running_demo(ended[1].root, "--seconds", "600") as demo:
        bootstrap = demo.bootstrap()
        demo.wait_for("events, ")
        produce(bootstrap, EVENTS, ["from nobody who is audited"] * 5)
        demo.process.send_signal(signal.SIGINT)
        assert demo.process.wait(END_S) == 1, demo.said
    assert "duplicated 5 (stored)" in demo.said
    assert "not balanced: the verdicts above say what is missing" in demo.said
    assert "Traceback" not in demo.said


@needs_spark
def test_a_second_ctrl_c_in_a_terminal_ends_it_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    arguments = ["demo", "--port", "0", "--data-dir", str(tmp_path / "data")]
    with in_terminal(Skylog("127.0.0.1:1"), *arguments) as (terminal, process):
        terminal.wait_for("website")
        terminal.wait_for("Spark is starting")
        process.send_signal(signal.SIGINT)
        terminal.wait_for("no more events")
        process.send_signal(signal.SIGINT)
        while terminal.read():
            pass
        assert process.wait(20) == 130
    assert "Traceback" not in terminal.seen
    wait_for_the_last_process(mark)


@needs_spark
@pytest.mark.parametrize(
    ("part", "said"), [("demo.driver", "Spark ended with code -9"), ("lifeline serve", "the broker")]
)
def test_a_part_that_dies_ends_it_and_is_named(tmp_path: Path, part: str, said: str) -> None:
    with running_demo(tmp_path / "data") as demo:
        demo.wait_for("events, ")
        os.kill(demo.wait_for_process(part), signal.SIGKILL)
        assert demo.process.wait(60) == 1
    assert f"error: {said}" in demo.said
    assert "Traceback" not in demo.said


@needs_spark
def test_neither_broker_nor_spark_outlives_it(tmp_path: Path) -> None:
    with running_demo(tmp_path / "data") as demo:
        demo.wait_for_process("org.apache.spark.deploy.SparkSubmit")
        demo.process.kill()
        demo.process.wait(20)
