"""`skylog demo` as a command: a broker, Spark and all jobs as processes."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from skylog.config import read_properties
from skylog.demo.layout import EVENTS, Layout
from skylog.demo.website import PAGES
from skylog.search_index import count_documents, search
from skylog.security.jaas import parse_jaas
from skylog.testing import produce, wait_until

from ..cli.conftest import SKYLOG, Skylog
from ..cli.terminal import in_terminal
from ..conftest import HAS_SPARK
from ..descendants import MARK, descendants, new_mark, wait_for_the_last
from ..proof import IS_FULL, some

needs_spark = pytest.mark.skipif(not HAS_SPARK, reason="pip install -e '.[spark]'")
patiently = pytest.mark.timeout(600)  # Spark is slow on a busy machine
START_S = 120.0
END_S = 400.0


@needs_spark
def test_a_port_in_use_is_named_with_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        command = [str(SKYLOG), "demo", "--port", str(port), "--data-dir", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"port {port} is in use; stop the other process or use --port 0 to pick a free port" in done.stderr
    assert "Traceback" not in done.stderr


@dataclass
class Demo:
    """A running demo. `printed` is its output so far."""

    process: subprocess.Popen[bytes]
    output: Path
    mark: str

    @property
    def printed(self) -> str:
        return self.output.read_text()

    def wait_for(self, text: str, seconds: float = START_S) -> None:
        def is_printed() -> bool:
            assert text in self.printed or self.process.poll() is None, f"it ended: {self.printed}"
            return text in self.printed

        wait_until(is_printed, f"{text!r} in {self.printed}", seconds)

    def wait_for_process(self, text: str) -> int:
        """The id of one that has `text` in its command line."""
        return wait_until(
            lambda: next((pid for pid, command in descendants(self.mark).items() if text in command), 0), text, START_S
        )

    def bootstrap(self) -> str:
        self.wait_for("broker at ")
        return self.printed.partition("broker at ")[2].partition(",")[0]


@contextmanager
def running_demo(data_dir: Path, *options: str) -> Iterator[Demo]:
    """Runs `skylog demo` without a terminal, and checks at the end that no process is left."""
    variable = new_mark()
    mark = variable[MARK]
    output = data_dir.parent / f"{mark}.out"
    command = [str(SKYLOG), "demo", "--port", "0", "--rate", "200", "--data-dir", str(data_dir), *options]
    with open(output, "wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, **variable})
    demo = Demo(process, output, mark)
    try:
        yield demo
        wait_for_the_last(mark)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Demo, Layout]:
    """A demo of eight seconds that has ended."""
    layout = Layout(tmp_path_factory.mktemp("demo") / "data")
    with running_demo(layout.root, "--seconds", "8") as demo:
        demo.process.wait(START_S + END_S)
    return demo, layout


@needs_spark
@patiently
def test_the_counts_balance_at_the_end(ended: tuple[Demo, Layout]) -> None:
    demo, _ = ended
    assert demo.process.returncode == 0, demo.printed
    assert "balanced: produced = stored = consumed = landed" in demo.printed
    [total] = [text.split()[1:5] for text in demo.printed.splitlines() if text.startswith("total")]
    assert len(set(total)) == 1
    assert int(total[0].replace(",", "")) > 1000
    assert "Traceback" not in demo.printed
    answer = demo.printed.partition("skylog search comet years")[2]
    assert "A comet over the harbour  /news/comet-over-the-harbour" in answer
    assert "comes back in 76 years" in answer  # written when the traffic had ended


@needs_spark
@patiently
def test_its_results_can_be_read_after_the_end(ended: tuple[Demo, Layout]) -> None:
    demo, layout = ended
    views = sqlite3.connect(layout.visits).execute("SELECT sum(visits) FROM visits").fetchone()[0]
    from deltalake import DeltaTable

    table = DeltaTable(layout.table).to_pyarrow_table(columns=["event"])
    events = Counter(table["event"].to_pylist())
    [total] = [text.split()[1] for text in demo.printed.splitlines() if text.startswith("total")]
    assert table.num_rows == int(total.replace(",", ""))
    assert views == events["page.view"] > 0
    assert {"page.view", "session.start", "page.share", "user.login", "post.create"} <= events.keys()
    assert search(layout.search, "harbour").total > 1
    assert count_documents(layout.search) == len(PAGES)  # one was deleted, and the rising one is not among them


@needs_spark
@patiently
@pytest.mark.skipif(not IS_FULL, reason="with `make proof`: a second demo, with Spark and all jobs")
def test_all_jobs_have_results_and_messages_of_another_producer_are_found(
    ended: tuple[Demo, Layout],
) -> None:
    """Continues in the directory of the run before."""
    with running_demo(ended[1].root, "--seconds", "600") as demo:
        bootstrap = demo.bootstrap()
        demo.wait_for("feed: ", END_S)
        demo.wait_for("suspicious: ", END_S)
        produce(bootstrap, EVENTS, ["not audited"] * 5)
        demo.process.send_signal(signal.SIGINT)
        assert demo.process.wait(END_S) == 1, demo.printed
    assert "duplicated 5 (stored)" in demo.printed
    assert "not balanced: the table above shows what is missing" in demo.printed
    assert "Traceback" not in demo.printed


@needs_spark
@patiently
@pytest.mark.skipif(not IS_FULL, reason="with `make proof`; tests/demo/test_access.py is the short form")
def test_a_secured_demo_balances_and_shows_no_secret(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "data")
    commands: set[str] = set()
    with running_demo(layout.root, "--seconds", "15", "--secure") as demo:
        while demo.process.poll() is None:
            commands |= set(descendants(demo.mark).values())
            time.sleep(1)
    assert demo.process.returncode == 0, demo.printed
    assert "everything logs in over TLS" in demo.printed
    texts = {"output": demo.printed, "processes": "\n".join(commands), "spark.log": layout.spark_log.read_text()}
    passwords = [
        parse_jaas(read_properties(path.read_text())["sasl.jaas.config"])["password"]
        for path in layout.secrets.glob("*.properties")
        if path.name in ("client.properties", "website.properties", "newsfeed.properties", "pipeline.properties")
    ]
    assert len(passwords) == 4
    assert [(name, secret) for name, text in texts.items() for secret in passwords if secret in text] == []


@needs_spark
@patiently
@pytest.mark.skipif(not IS_FULL, reason="with `make proof`; tests/demo/test_failover.py is the short form")
@pytest.mark.parametrize("options", [(), ("--secure",)], ids=["plain", "secured"])
def test_on_three_brokers_the_counts_balance_although_a_leader_is_killed(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    layout = Layout(tmp_path / "data")
    with running_demo(layout.root, "--seconds", "20", "--brokers", "3", *options) as demo:
        demo.process.wait(START_S + END_S)
    assert demo.process.returncode == 0, demo.printed
    assert "kill -9 of broker" in demo.printed
    assert "is led by broker" in demo.printed
    assert "is back" in demo.printed
    assert "balanced: produced = stored = consumed = landed" in demo.printed
    assert "Traceback" not in demo.printed
    assert f"skylog cluster up --data-dir {layout.cluster}" in demo.printed


@needs_spark
def test_a_second_ctrl_c_in_a_terminal_kills_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mark = new_mark()[MARK]
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
    wait_for_the_last(mark)


@needs_spark
@pytest.mark.parametrize(
    ("part", "error"), some([("demo.driver", "Spark exited with code -9"), ("lifeline serve", "the broker")], usual=1)
)
def test_a_part_that_dies_ends_it_and_is_named(tmp_path: Path, part: str, error: str) -> None:
    with running_demo(tmp_path / "data") as demo:
        demo.wait_for("events, ")
        os.kill(demo.wait_for_process(part), signal.SIGKILL)
        assert demo.process.wait(60) == 1
    assert f"error: {error}" in demo.printed
    assert "Traceback" not in demo.printed


@needs_spark
def test_neither_broker_nor_spark_outlives_it(tmp_path: Path) -> None:
    with running_demo(tmp_path / "data") as demo:
        demo.wait_for_process("org.apache.spark.deploy.SparkSubmit")
        demo.process.kill()
        demo.process.wait(20)
