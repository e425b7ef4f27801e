"""The console's process beside a broker: when it starts, what it can request, and that it never outlives the broker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from skylog.broker.metrics import Health
from skylog.cli.serve import companion_process
from skylog.cli.serve.console_process import ConsoleProcess
from skylog.console.cluster import parent_broker
from skylog.console.cluster.parent_broker import ParentBroker, ParentBrokerError
from skylog.console.server.page import status_of
from skylog.metric import from_document
from skylog.testing import BrokerProcess, wait_until
from skylog.web.listening import listen
from tests.broker.metrics.reading import collected, value
from tests.broker.process import BrokerThread

STAND_IN = [sys.executable, "-m", "tests.cli.stand_in_console"]
NEVER_S = 3600.0
OWNER = """
import asyncio, sys
from pathlib import Path
from skylog.broker import standalone_broker
from skylog.broker.metrics import Health
from skylog.cli.serve.console_process import ConsoleProcess
from skylog.web.listening import listen

async def main():
    broker = standalone_broker(Path(sys.argv[1]))
    await broker.start("127.0.0.1", 0)
    sock = listen("127.0.0.1", 0)
    console = ConsoleProcess(broker, Health(broker), sock, [sys.executable, "-m", "tests.cli.stand_in_console"], {})
    console.start()
    print(sock.getsockname()[1], flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


class Running:
    """A broker with a console process beside it."""

    def __init__(self, thread: BrokerThread, console: ConsoleProcess, port: int) -> None:
        self.thread = thread
        self.console = console
        self.port = port

    def visit(self, word: str) -> Any:
        return visit(self.port, word)

    @property
    def pid(self) -> int | None:
        return self.console.pid


def visit(port: int, word: str) -> Any:
    with socket.create_connection(("127.0.0.1", port), 20) as sock:
        sock.sendall(word.encode() + b"\n")
        return json.loads(sock.makefile().readline() or "null")


@pytest.fixture
def thread(tmp_path: Path) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path / "data") as thread:
        yield thread


@contextlib.contextmanager
def console_beside(
    thread: BrokerThread, command: list[str] | None = None, start_after_s: float = NEVER_S
) -> Iterator[Running]:
    sock = listen("127.0.0.1", 0)
    health = Health(thread.broker, ignored_jobs={"console"})
    console = ConsoleProcess(thread.broker, health, sock, command or STAND_IN, {}, start_after_s)
    thread.broker.background["console"] = console
    port = sock.getsockname()[1]
    thread.look(lambda _: console.start())
    try:
        yield Running(thread, console, port)
    finally:
        thread.run(console.stop())


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid: int) -> list[int]:
    return [int(text) for path in Path(f"/proc/{pid}/task").glob("*/children") for text in path.read_text().split()]


def test_there_is_no_process_before_the_first_visitor_who_is_then_served(thread: BrokerThread) -> None:
    with console_beside(thread) as running:
        thread.look(lambda _: None)
        assert running.pid is None
        assert running.visit("pid") == running.pid
        assert running.pid is not None
        assert os.getpriority(os.PRIO_PROCESS, running.pid) == os.getpriority(os.PRIO_PROCESS, 0) + 5


@pytest.mark.parametrize("turns", range(5))
def test_a_stop_that_comes_together_with_the_first_visitor_is_not_lost(thread: BrokerThread, turns: int) -> None:
    with console_beside(thread) as running:

        async def visit_and_stop() -> None:
            with socket.create_connection(("127.0.0.1", running.port)):
                for _ in range(turns):
                    await asyncio.sleep(0)
                await running.console.stop()

        thread.run(visit_and_stop())


def test_without_visitors_it_is_started_after_a_while(thread: BrokerThread) -> None:
    with console_beside(thread, start_after_s=0.05) as running:
        wait_until(lambda: running.pid is not None, "the console to be started")


def test_the_broker_reports_its_metrics_and_its_health(thread: BrokerThread) -> None:
    with console_beside(thread) as running:
        metrics = from_document(running.visit("metrics"))
        assert value(metrics, "kafka_server_replicamanager_partitioncount") == 0
        health = running.visit("health")
        assert (health["healthy"], health["node_id"]) == (True, 1)
        assert "unknown request 'nonsense'" in running.visit("nonsense")
        names = {metric.name for metric in metrics}
        brief = {metric.name for metric in from_document(running.visit("brief"))}
        groups = {"kafka_consumergroup_current_offset", "kafka_consumergroup_lag", "kafka_consumergroup_members"}
        assert names - brief == groups
        assert running.visit("metrics"), "the next question is answered as ever"


def test_a_console_that_dies_is_counted_and_started_again(
    thread: BrokerThread, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(companion_process, "SHORTEST_PAUSE_S", 0.02)
    with console_beside(thread) as running:
        first = running.visit("pid")
        assert running.visit("die") is None
        assert running.visit("pid") != first
        assert value(collected(thread), "skylog_background_failures_total", job="console") == 1
        assert running.visit("health")["healthy"], "the broker itself is well"
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        "the console exited with code 3; restarting it in 0 s"
    ]


def test_a_console_that_cannot_be_started_is_tried_less_and_less_often(
    thread: BrokerThread, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(companion_process, "SHORTEST_PAUSE_S", 0.01)
    monkeypatch.setattr(companion_process, "LONGEST_PAUSE_S", 0.04)
    with console_beside(thread, ["/nonexistent/console"], start_after_s=0) as running:
        wait_until(lambda: running.console.failures >= 4, "four attempts")
    pauses = [record.args[2] for record in caplog.records if record.levelname == "ERROR" and record.args]  # type: ignore[index]
    assert pauses[:4] == [0.01, 0.02, 0.04, 0.04]
    assert "could not be started" in caplog.text


def test_it_ends_with_the_broker(thread: BrokerThread) -> None:
    with console_beside(thread) as running:
        pid = running.visit("pid")
        began = time.monotonic()
    assert not is_alive(pid)
    assert time.monotonic() - began < companion_process.STOP_GRACE_S


def test_one_that_does_not_listen_is_killed(thread: BrokerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(companion_process, "STOP_GRACE_S", 0.1)
    deaf = [sys.executable, "-c", "import signal; signal.pause()"]
    with console_beside(thread, deaf, start_after_s=0) as running:
        wait_until(lambda: running.pid is not None, "the console to be started")
        pid = running.pid
    assert pid is not None
    assert not is_alive(pid)


def test_it_ends_with_a_broker_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        try:
            assert owner.stdout is not None
            pid = visit(int(owner.stdout.readline()), "pid")
            assert is_alive(pid)
        finally:
            owner.send_signal(signal.SIGKILL)
        wait_until(lambda: not is_alive(pid), "the console to end")


def test_secrets_are_not_on_a_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKYLOG_CONSOLE_TOKEN", "open-sesame")
    with BrokerProcess(console=True) as broker:
        port = int(broker.console_url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)):
            wait_until(lambda: bool(children(broker.pid)), "the console to be started")
            (pid,) = children(broker.pid)
            process = Path(f"/proc/{pid}")  # first a fork of the broker, with the command line of that
            variable = b"SKYLOG_CONSOLE_TOKEN=open-sesame"
            wait_until(lambda: variable in (process / "environ").read_bytes(), "its environment")
            wait_until(lambda: b"console" in (process / "cmdline").read_bytes(), "its command line")
            assert b"open-sesame" not in (process / "cmdline").read_bytes()


def test_the_real_console_shows_the_metrics_of_its_broker_and_ends_with_it() -> None:
    with BrokerProcess(console=True) as broker:
        with urllib.request.urlopen(f"{broker.console_url}/metrics", timeout=30) as response:
            families = {family.name for family in text_string_to_metric_families(response.read().decode())}
        assert {"skylog_build_info", "kafka_network_requestmetrics_totaltimems", "skylog_offline_logs"} <= families
        with urllib.request.urlopen(f"{broker.console_url}/health", timeout=30) as response:
            assert json.load(response)["healthy"] is True
        (pid,) = children(broker.pid)
        broker.kill()
        wait_until(lambda: not is_alive(pid), "the console to end")


# -- the console's end of the socket pair


async def questions(sock: socket.socket, count: int) -> None:
    """Wait until a console has sent `count` requests."""
    sock.setblocking(False)
    asked = b""
    async with asyncio.timeout(10):
        while asked.count(b"\n") < count:
            asked += await asyncio.get_running_loop().sock_recv(sock, 4096)


def test_an_answer_that_comes_too_late_is_not_taken_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent_broker, "METRICS_TIMEOUT_S", 0.05)

    async def ask() -> None:
        ours, theirs = socket.socketpair()
        beside = ParentBroker(theirs.detach())
        with ours:
            with pytest.raises(ParentBrokerError, match=r"did not send its metrics within 0\.05 s") as caught:
                await beside.metrics()
            assert status_of(caught.value) == 503
            ours.sendall(b'1 more {"name": "a", "kind": "gauge", "help": "", "samples": []}\n1 end {}\n')
            asked = asyncio.create_task(beside.health())
            await questions(ours, 2)
            ours.sendall(b'2 end {"healthy": true}\n')
            assert await asked == {"healthy": True}
        await asyncio.wait_for(beside.ended(), 10)
        with pytest.raises(ParentBrokerError, match="has stopped"):
            await beside.health()
        await beside.close()

    asyncio.run(ask())


def test_the_health_does_not_wait_for_the_metrics() -> None:
    async def ask() -> None:
        ours, theirs = socket.socketpair()
        beside = ParentBroker(theirs.detach())
        with ours:
            metrics = asyncio.create_task(beside.metrics())
            health = asyncio.create_task(beside.health())
            await questions(ours, 2)
            piece = b'1 more {"name": "a", "kind": "gauge", "help": "", "samples": [{"value": %d, "labels": {}}]}\n'
            ours.sendall(piece % 1 + b'2 end {"healthy": true}\n')
            assert await health == {"healthy": True}
            assert not metrics.done()
            ours.sendall(piece % 2 + b"1 end {}\n")
            (metric,) = await metrics
            assert [sample.value for sample in metric.samples] == [1, 2]
        await beside.close()

    asyncio.run(ask())


def test_probes_at_the_same_time_share_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent_broker, "HEALTH_TIMEOUT_S", 0.1)

    async def ask() -> None:
        ours, theirs = socket.socketpair()
        beside = ParentBroker(theirs.detach())
        with ours:
            errors = await asyncio.gather(*(beside.health() for _ in range(20)), return_exceptions=True)
            assert all(isinstance(error, ParentBrokerError) for error in errors)
            assert ours.recv(4096) == b"1 health\n"
        await beside.close()

    asyncio.run(ask())


def test_a_waiting_request_fails_when_the_broker_ends() -> None:
    async def ask() -> None:
        ours, theirs = socket.socketpair()
        beside = ParentBroker(theirs.detach())
        asyncio.get_running_loop().call_later(0.05, ours.close)
        with pytest.raises(ParentBrokerError, match="stopped without a response"):
            await beside.metrics()
        await beside.close()

    asyncio.run(ask())
