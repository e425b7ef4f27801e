"""The demo's broker as a child process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from skylog.client import Admin
from skylog.demo.broker import DemoBroker
from skylog.errors import SkylogError
from skylog.testing import wait_until

PARENT = """
import signal, sys
from pathlib import Path
from skylog.demo.broker import DemoBroker
broker = DemoBroker(Path(sys.argv[1]), 0)
broker.start()
print(broker.bootstrap, flush=True)
signal.pause()
"""


def test_it_serves_clients_and_a_console_until_it_is_closed(tmp_path: Path) -> None:
    broker = DemoBroker(tmp_path / "data", 0)
    broker.start()
    try:
        assert broker.is_running
        assert Admin(broker.bootstrap).list_topics() == []
        assert broker.console_url.startswith("http://127.0.0.1:")
    finally:
        broker.close()
    assert not broker.is_running
    broker.close()


def test_a_killed_broker_is_not_running_and_its_log_can_be_read(tmp_path: Path) -> None:
    broker = DemoBroker(tmp_path / "data", 0)
    broker.start()
    broker.kill()
    assert not broker.is_running
    assert "console at http://" in broker.log()
    broker.close()


def test_a_port_in_use_is_an_error_that_explains_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SkylogError, match=f"port {port} is in use; stop the other process or use --port 0"):
            DemoBroker(tmp_path / "data", port).start()


def test_it_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        host, _, port = parent.stdout.readline().strip().partition(":")
        os.kill(parent.pid, signal.SIGKILL)

    def is_closed() -> bool:
        with socket.socket() as sock:
            return sock.connect_ex((host, int(port))) != 0

    wait_until(is_closed, "the end of the broker")
