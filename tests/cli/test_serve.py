"""`skylog serve` as a command: its output, and when it does not open a console."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from skylog.broker import ServerConfig
from skylog.cli.log_format import JsonFormatter
from skylog.cli.serve.store_session import session_opener
from skylog.cli.stop_signals import stop_signals
from skylog.cluster import EntryChange
from skylog.console.settings import DEFAULT_PORT
from skylog.testing.store_server import StoreServer
from tests.cli.commands import run_skylog

SKYLOG = Path(sys.executable).with_name("skylog")


@contextlib.contextmanager
def serving(data_dir: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A broker that is stopped cleanly at the end, within the time limit. Read its output after that."""
    command = [str(SKYLOG), "serve", "--data-dir", str(data_dir), "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("listening on ")
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)


def said(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Its stdout after the first line, and its stderr."""
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0
    return out, err


def refused(*options: str) -> str:
    """The stderr of a broker that does not start."""
    result = run_skylog("serve", "--port", "0", "--data-dir", os.devnull, *options)
    assert (result.returncode, result.stdout) == (1, "")
    return result.stderr


def test_the_console_is_announced_on_stderr_and_stdout_keeps_its_one_line(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--console-port", "0") as process:
        out, err = said(process)
    assert out == ""
    (url,) = [line.removeprefix("console at ") for line in err.splitlines() if line.startswith("console at ")]
    assert url.startswith("http://127.0.0.1:")


def test_the_end_of_its_terminal_stops_a_broker_cleanly(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--no-console") as process:
        process.send_signal(signal.SIGHUP)
        assert process.wait(30) == 0
    assert (tmp_path / "data" / "clean-shutdown").exists()


def test_a_signal_that_is_ignored_since_the_start_stops_nothing() -> None:
    """As `nohup` does it for SIGHUP."""
    assert stop_signals() == (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert stop_signals() == (signal.SIGTERM, signal.SIGINT)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_without_a_console_none_is_announced(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--no-console") as process:
        _, err = said(process)
    assert "console at" not in err


def test_a_default_port_in_use_is_one_warning_and_no_console(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # already in use by another process: that works, too
            taken.bind(("127.0.0.1", DEFAULT_PORT))
            taken.listen()
        with serving(tmp_path / "data") as process:
            _, err = said(process)
    (warning,) = [line for line in err.splitlines() if "WARNING" in line]
    assert "--console-port" in warning
    assert "console at" not in err


def test_an_explicit_port_in_use_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        message = refused("--console-port", str(taken.getsockname()[1]))
    assert "error: the console cannot listen on 127.0.0.1:" in message
    assert "choose another --console-port" in message


def test_an_explicit_address_that_is_not_available_is_an_error() -> None:
    message = refused(
        "--console-host", "192.0.2.1", "--console-token", "open-sesame"
    )  # an address reserved by RFC 5737
    assert f"error: the console cannot listen on 192.0.2.1:{DEFAULT_PORT}" in message


def test_a_full_disk_is_not_taken_for_an_address_that_is_not_available(tmp_path: Path) -> None:
    with StoreServer() as store:
        member = ["--metadata-store", store.address, "--no-console"]
        with serving(tmp_path, *member) as process:
            said(process)
        result = subprocess.run(
            [str(SKYLOG), "serve", "--data-dir", str(tmp_path), "--port", "0", *member],
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),  # a file may have no bytes
            stderr=subprocess.PIPE,
            text=True,
            timeout=30,
        )
    assert f"error: cannot use --data-dir {tmp_path}: File too large" in result.stderr


def test_a_broker_alone_rejects_the_directory_of_a_broker_of_a_cluster(tmp_path: Path) -> None:
    with StoreServer() as store, serving(tmp_path, "--metadata-store", store.address, "--no-console") as process:
        said(process)
    result = run_skylog("serve", "--port", "0", "--data-dir", str(tmp_path))
    assert result.returncode == 1
    assert "start it with --zookeeper" in result.stderr


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "no.such.host.invalid"])
def test_a_console_beyond_this_machine_requires_credentials(host: str) -> None:
    message = refused("--console-host", host, "--console-port", "0")
    assert all(option in message for option in ("--console-token", "--console-user", "--console-password"))


def test_a_console_beyond_this_machine_is_opened_with_a_token(tmp_path: Path) -> None:
    options = ["--console-host", "0.0.0.0", "--console-port", "0", "--console-token", "open-sesame"]
    with serving(tmp_path / "data", *options) as process:
        _, err = said(process)
    assert "console at http://0.0.0.0:" in err
    assert "open-sesame" not in err


def test_a_user_needs_a_password() -> None:
    assert "--console-password" in refused("--console-user", "root")


def test_a_cluster_has_one_metadata_store() -> None:
    message = refused("--zookeeper", "127.0.0.1:1", "--metadata-store", "127.0.0.1:1")
    assert "give --zookeeper or --metadata-store" in message


def test_a_metadata_store_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    options = ["--metadata-store", "127.0.0.1:1", "--set", "zookeeper.session.timeout.ms=200", "--no-console"]
    message = refused("--data-dir", str(tmp_path), *options)
    assert "error: the metadata store at 127.0.0.1:1 did not respond in 200 ms" in message


def test_the_session_of_a_broker_has_its_name_and_timeout() -> None:
    async def end_session(server: StoreServer) -> None:
        open_session = session_opener(
            None, server.address, ServerConfig.parse({"node.id": "3", "zookeeper.session.timeout.ms": "60000"})
        )
        assert open_session is not None
        session = await open_session()
        await session.commit([EntryChange("/brokers/3", {}, 0, ephemeral=True)])
        server.expire("broker-3")
        assert server.entries() == {}

    assert session_opener(None, None, ServerConfig()) is None
    with StoreServer() as server:
        asyncio.run(end_session(server))


def test_the_log_as_json_is_one_object_per_line(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--log-format", "json", "--console-port", "0") as process:
        out, err = said(process)
    assert out == ""
    lines = [json.loads(line) for line in err.splitlines()]
    assert {"INFO"} == {line["level"] for line in lines}
    assert lines[-1]["message"] == "broker 1 has stopped"
    assert lines[-1]["logger"] == "skylog.broker.broker"
    age = datetime.now(UTC) - datetime.fromisoformat(lines[-1]["time"])
    assert 0 <= age.total_seconds() < 60
    assert any(line["message"].startswith("console at http://") for line in lines)


def test_an_exception_is_part_of_its_line() -> None:
    def fail() -> logging.LogRecord:
        try:
            raise ValueError("no\nway")
        except ValueError:
            return logging.LogRecord("a.b", logging.ERROR, __file__, 1, "it %s", ("failed",), sys.exc_info())

    text = JsonFormatter().format(fail())
    assert "\n" not in text
    line = json.loads(text)
    assert (line["level"], line["logger"], line["message"]) == ("ERROR", "a.b", "it failed")
    assert "ValueError: no\nway" in line["exception"]
    assert line["time"].endswith("Z")
