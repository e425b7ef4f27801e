"""`skylog zookeeper`, as a process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from skylog.java import RequirementError, find_java

from ..conftest import HAS_SPARK
from .commands import run_skylog
from .conftest import SKYLOG, until


@pytest.fixture(autouse=True, scope="module")
def _requirements() -> None:
    if not HAS_SPARK:
        pytest.skip("pip install -e '.[spark]'")
    try:
        find_java("ZooKeeper")
    except RequirementError as error:
        pytest.skip(str(error))


@contextlib.contextmanager
def running(data_dir: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the command, and kill it at the end. Yields it and its first line."""
    command = [str(SKYLOG), "zookeeper", "--data-dir", str(data_dir), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline()
        finally:
            process.kill()


def server_of(data_dir: Path) -> int | None:
    """The id of the Java process that runs in a data directory."""
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (
                os.readlink(directory / "cwd") == str(data_dir)
                and b"QuorumPeerMain" in (directory / "cmdline").read_bytes()
            ):
                return int(directory.name)
    return None


def is_answering(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(b"srvr")
        return b"Zookeeper version: 3.9" in connection.recv(4096)
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_answers_on_the_port_that_it_prints_and_a_signal_stops_it(tmp_path: Path, number: int) -> None:
    with running(tmp_path / "new" / "data", "--port", "0") as (process, line):
        assert line.startswith("listening on 127.0.0.1:")
        address = line.removeprefix("listening on ").rstrip("\n")
        assert is_answering(address)
        process.send_signal(number)
        assert process.communicate(timeout=30) == ("", "")
        assert process.returncode == 0
        assert server_of(tmp_path / "new" / "data") is None
        assert not is_answering(address)


def test_with_secrets_it_serves_only_who_logs_in_over_tls(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    assert run_skylog("secure", str(secrets)).returncode == 0
    with running(tmp_path / "data", "--port", "0", "--secrets", str(secrets)) as (_, line):
        address = line.removeprefix("listening on ").rstrip("\n")
        assert not is_answering(address)
        login = {"SKYLOG_CONFIG": str(secrets / "cluster.properties"), "SKYLOG_USER_PASSWORD": "p"}
        done = run_skylog("users", "add", "alice", "--zookeeper", address, variables=login)
        assert done.returncode == 0, done.stderr
        done = run_skylog("users", "list", "--json", "--zookeeper", address, variables=login)
        assert [row["user"] for row in json.loads(done.stdout)] == ["alice"], done.stderr
    refused = run_skylog("zookeeper", "--data-dir", str(tmp_path / "other"), "--secrets", str(tmp_path))
    assert (refused.returncode, f"{tmp_path} has no cluster.properties of skylog secure" in refused.stderr) == (1, True)


def test_the_server_does_not_outlive_a_command_that_is_killed(tmp_path: Path) -> None:
    with running(tmp_path, "--port", "0") as (process, line):
        with running(tmp_path, "--port", "0") as (second, nothing):
            assert nothing == ""
            assert f"{tmp_path} is in use by another ZooKeeper" in second.communicate(timeout=30)[1]
            assert second.returncode == 1
        port = line.rpartition(":")[2].strip()
        with running(tmp_path / "other", "--port", port) as (third, _):
            assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in third.communicate(timeout=30)[1]
        assert server_of(tmp_path) is not None
        process.send_signal(signal.SIGKILL)
        until(lambda: server_of(tmp_path) is None)


def test_the_command_ends_with_an_error_if_the_server_dies(tmp_path: Path) -> None:
    with running(tmp_path, "--port", "0") as (process, _):
        server = server_of(tmp_path)
        assert server is not None
        os.kill(server, signal.SIGKILL)
        assert "error: ZooKeeper has ended by itself" in process.communicate(timeout=30)[1]
        assert process.returncode == 1
