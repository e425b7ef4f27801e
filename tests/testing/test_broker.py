"""A broker in the tests of another project: started, killed, started again, and never left running."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

from skylog.client import Admin, BrokerUnreachableError, Connection
from skylog.testing import BrokerProcess, BrokerProcessError, consume, produce, wait_until
from skylog.testing.command import _starter

OWNER = """
import signal
from skylog.testing import BrokerProcess
brokers = [BrokerProcess().start() for _ in range(2)]  # the second one is forked
print(*(broker.pid for broker in brokers), flush=True)
signal.pause()
"""


def values(broker: BrokerProcess, topic: str) -> list[bytes | None]:
    return [message.value for message in consume(broker.bootstrap, topic)]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def let_die(broker: BrokerProcess) -> None:
    """Send a signal without the object's knowledge."""
    os.kill(broker.pid, signal.SIGKILL)
    wait_until(lambda: not broker.is_running, "the broker to die")


def test_a_broker_of_its_own_directory_leaves_nothing_behind() -> None:
    with BrokerProcess() as broker:
        produce(broker.bootstrap, "letters", ["a"])
        pid, home = broker.pid, broker.data_dir.parent
        assert any(broker.data_dir.iterdir())
    assert not is_alive(pid)
    assert not home.exists()


def test_a_given_directory_is_kept(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        produce(broker.bootstrap, "letters", ["a"])
    with BrokerProcess(tmp_path / "data") as broker:
        assert values(broker, "letters") == [b"a"]


def test_a_restart_keeps_address_and_messages() -> None:
    with BrokerProcess() as broker:
        bootstrap, pid = broker.bootstrap, broker.pid
        produce(bootstrap, "letters", ["a", "b"])
        broker.restart()
        assert (broker.bootstrap, broker.pid == pid) == (bootstrap, False)
        assert values(broker, "letters") == [b"a", b"b"]


def test_a_killed_broker_is_gone_until_it_is_started_again() -> None:
    with BrokerProcess() as broker:
        bootstrap = broker.bootstrap
        produce(bootstrap, "letters", ["a"])
        broker.kill()
        assert not broker.is_running
        broker.start()
        assert broker.bootstrap == bootstrap
        assert values(broker, "letters") == [b"a"]


def test_a_paused_broker_does_not_answer_and_can_be_resumed_or_stopped() -> None:
    with BrokerProcess() as broker:
        broker.pause()
        with pytest.raises(BrokerUnreachableError):
            Admin(Connection(broker.bootstrap, timeout_s=0.5)).list_topics()
        broker.resume()
        produce(broker.bootstrap, "letters", ["a"])
        broker.pause()
        broker.stop()
        assert not broker.is_running


def test_settings_reach_the_broker() -> None:
    with BrokerProcess(settings={"num.partitions": "3"}) as broker:
        produce(broker.bootstrap, "letters", ["a"], partition=2)
        assert values(broker, "letters") == [b"a"]


def test_the_error_of_a_broker_that_does_not_start_has_its_stderr() -> None:
    broker = BrokerProcess(settings={"num.partitionz": "1"})
    with pytest.raises(BrokerProcessError, match=r"num\.partitions"):
        broker.start()
    assert not broker.is_running
    broker.close()


def test_a_broker_that_hangs_at_its_start_is_killed_and_its_stderr_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.stop()
        meta = tmp_path / "data" / "meta.properties"
        meta.unlink()
        os.mkfifo(meta)  # a reader waits for a writer that never comes
        monkeypatch.setattr("skylog.testing.broker.START_PATIENCE_S", 2.0)
        with pytest.raises(BrokerProcessError, match=r"(?s)did not start in 2\.0 s: .*Try it"):
            broker.start()
        assert not broker.is_running


def test_a_broker_that_died_by_itself_leaves_no_pipe_open() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        with BrokerProcess() as broker:
            for _ in range(2):  # the first time it is started again, the second time it is closed
                broker.restart()
                let_die(broker)
        del broker
    assert [str(warning.message) for warning in caught] == []


def test_a_port_in_use_is_named() -> None:
    with BrokerProcess() as first, pytest.raises(BrokerProcessError, match=f"127.0.0.1:{first.port}"):
        BrokerProcess(port=first.port).start()


def test_what_was_logged_can_be_read_after_the_end() -> None:
    with BrokerProcess() as broker:
        broker.restart()
    assert broker.stderr().count("Try it, in another terminal") == 2


def test_a_broker_starts_though_the_process_that_forks_them_was_killed() -> None:
    with BrokerProcess() as broker:
        broker.restart()  # forked
        server = _starter._server
        assert server is not None
        server._server.kill()
        server._server.wait()
        for _ in range(2):
            broker.kill()
            broker.start()
        produce(broker.bootstrap, "letters", ["a"])
        assert values(broker, "letters") == [b"a"]
        assert _starter._server is not server


def test_brokers_end_when_their_owner_is_killed(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}  # a killed process leaves its files
    command = [sys.executable, "-c", OWNER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as owner:
        assert owner.stdout is not None
        pids = [int(text) for text in owner.stdout.readline().split()]
        assert len(pids) == 2
        assert all(map(is_alive, pids))
        owner.kill()
    try:
        wait_until(lambda: not any(map(is_alive, pids)), "the brokers to follow their owner")
    finally:
        for pid in filter(is_alive, pids):
            os.kill(pid, signal.SIGKILL)


def test_a_broker_outlives_the_thread_that_started_it() -> None:
    broker = BrokerProcess()
    starter = threading.Thread(target=broker.start)
    starter.start()
    starter.join()
    try:
        produce(broker.bootstrap, "letters", ["a"])
        assert values(broker, "letters") == [b"a"]
    finally:
        broker.close()


def test_ctrl_c_in_the_terminal_is_not_meant_for_the_broker() -> None:
    with BrokerProcess() as broker:
        assert os.getpgid(broker.pid) != os.getpgid(0)


def test_a_broker_has_a_console_on_request_and_knows_its_url() -> None:
    with BrokerProcess(console=True) as broker:
        host, _, port = broker.console_url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), 10):
            pass
        first = broker.console_url
        broker.restart()
        assert broker.stderr().count("console at ") == 2
        assert broker.console_url != first or broker.stderr().count(first) == 2


def test_a_broker_has_no_console_by_default() -> None:
    with BrokerProcess() as broker, pytest.raises(BrokerProcessError, match="console=True"):
        _ = broker.console_url


def test_further_options_reach_the_command_line() -> None:
    with BrokerProcess(options=["--log-format", "json"]) as broker:
        assert broker.stderr().startswith("{")
