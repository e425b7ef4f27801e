"""Commands that are forked rather than started: each is a process like any other."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from skylog.testing import wait_until
from skylog.testing.fork_server import ForkedProcess, ForkServer


@pytest.fixture(scope="module")
def server() -> ForkServer:
    return ForkServer()


def start(server: ForkServer, home: Path, *arguments: str, **environment: str) -> ForkedProcess:
    with open(os.devnull) as stdin, open(home / "stdout", "w") as stdout, open(home / "stderr", "w") as stderr:
        streams = (stdin.fileno(), stdout.fileno(), stderr.fileno())
        return server.start(arguments, *streams, environment={**os.environ, **environment})


def test_a_command_has_its_own_streams_and_exit_code(server: ForkServer, tmp_path: Path) -> None:
    assert start(server, tmp_path, "--version").wait(30) == 0
    assert (tmp_path / "stdout").read_text().startswith("skylog ")
    assert start(server, tmp_path, "no-such-command").wait(30) == 2
    assert "no-such-command" in (tmp_path / "stderr").read_text()


def test_a_command_has_its_own_environment_and_directory(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert start(server, tmp_path, "topics", "list", SKYLOG_BOOTSTRAP="127.0.0.1:1").wait(30) == 1
    assert "127.0.0.1:1" in (tmp_path / "stderr").read_text()
    process = start(server, tmp_path, "serve", "--data-dir", "here", "--port", "0", "--no-console")
    wait_until(lambda: "listening on" in (tmp_path / "stdout").read_text(), "the broker")
    assert (tmp_path / "here").is_dir()
    assert process.poll() is None
    process.terminate()
    assert process.wait(30) == 0


def test_a_signal_is_the_exit_code_and_a_wait_has_a_limit(server: ForkServer, tmp_path: Path) -> None:
    process = start(server, tmp_path, "serve", "--data-dir", str(tmp_path / "data"), "--port", "0", "--no-console")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.kill()
    assert process.wait(30) == -signal.SIGKILL
    process.kill()  # it is gone, and its pid may be another's
    assert process.poll() == -signal.SIGKILL


def test_every_thread_that_waits_gets_the_exit_code(server: ForkServer, tmp_path: Path) -> None:
    for _ in range(5):
        process = start(server, tmp_path, "--version")
        together = threading.Barrier(8)

        def wait(process: ForkedProcess = process, together: threading.Barrier = together) -> int:
            together.wait()
            while process.poll() is None:
                pass
            return process.wait(30)

        with ThreadPoolExecutor(8) as threads:
            assert [each.result() for each in [threads.submit(wait) for _ in range(8)]] == [0] * 8


def test_several_commands_run_at_once(server: ForkServer, tmp_path: Path) -> None:
    homes = [tmp_path / str(number) for number in range(5)]
    for home in homes:
        home.mkdir()
    processes = [start(server, home, "--version") for home in homes]
    assert len({process.pid for process in processes}) == 5
    assert [process.wait(30) for process in processes] == [0] * 5


def test_a_server_that_was_killed_is_an_error(tmp_path: Path) -> None:
    server = ForkServer()
    process = start(server, tmp_path, "serve", "--data-dir", str(tmp_path / "data"), "--port", "0", "--no-console")
    server._server.kill()
    server._server.wait()
    with pytest.raises(OSError, match=r"has ended|Broken pipe|reset"):
        start(server, tmp_path, "--version")
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(30) == 255
