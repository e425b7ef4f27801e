"""`skylog cluster up`, as a process: a whole cluster with one command."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from skylog.client import Admin, Connection
from skylog.errors import SkylogError
from skylog.java import RequirementError, find_java
from skylog.testing import consume, produce, wait_until

from ..conftest import HAS_SPARK
from ..descendants import MARK, descendants, new_mark, wait_for_the_last
from .commands import run_skylog
from .conftest import SKYLOG, STARTED

START_S = 120.0


def needs_java() -> None:
    if not HAS_SPARK:
        pytest.skip("pip install -e '.[spark]'")
    try:
        find_java("ZooKeeper")
    except RequirementError as error:
        pytest.skip(str(error))


@dataclass
class Up:
    """The running command. `stderr` is the file with its stderr."""

    process: subprocess.Popen[str]
    bootstrap: str
    stderr: Path
    mark: str

    @property
    def addresses(self) -> list[str]:
        return self.bootstrap.split(",")

    @property
    def console_url(self) -> str:
        return next(
            line.removeprefix("console at ") for line in self.said().splitlines() if line.startswith("console at ")
        )

    def said(self) -> str:
        return self.stderr.read_text()

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.said(), f"{text!r} in {self.said()!r}", START_S)

    def broker(self, node_id: int) -> int:
        """The process id of a broker."""
        return wait_until(
            lambda: next(
                (
                    pid
                    for pid, line in descendants(self.mark).items()
                    if " serve " in line and f"node.id={node_id}" in line
                ),
                0,
            ),
            f"broker {node_id}",
        )

    def stop(self, number: int = signal.SIGINT) -> str:
        """Stop it with a signal, and return its stdout after the first line."""
        self.process.send_signal(number)
        out, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, self.said()
        return out


@contextlib.contextmanager
def running(data_dir: Path, *options: str) -> Iterator[Up]:
    """Run the command on free ports, and check at the end that no process is left."""
    variable = new_mark()
    stderr = data_dir.parent / f"{variable[MARK]}.err"
    command = [str(SKYLOG), "cluster", "up", "--data-dir", str(data_dir), *options]
    with open(stderr, "w") as file:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=file, text=True, env={**os.environ, **variable}
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith(STARTED), stderr.read_text()
        yield Up(process, line.removeprefix(STARTED).rstrip("\n"), stderr, variable[MARK])
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    wait_for_the_last(variable[MARK])


def refused(*options: str, **environment: str) -> str:
    """The stderr of a command that does not start a cluster."""
    done = run_skylog("cluster", "up", *options, variables=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Three brokers and a console. Every test leaves the cluster complete."""
    needs_java()
    home = tmp_path_factory.mktemp("cluster")
    options = ["--brokers", "3", "--port", "0", "--console-port", "0", "--set", "offsets.topic.num.partitions=3"]
    with running(home / "data", *options) as up:
        yield up
        assert up.stop() == ""


def test_a_message_that_one_broker_took_is_read_through_every_broker(cluster: Up) -> None:
    assert len(set(cluster.addresses)) == 3
    for number, address in enumerate(cluster.addresses):
        produce(address, f"through-{number}", ["hello"])
        for other in cluster.addresses:
            assert [message.value for message in consume(other, f"through-{number}", 1, timeout_s=30)] == [b"hello"]


def test_topics_have_three_replicas_and_survive_the_loss_of_one(cluster: Up) -> None:
    admin = Admin(Connection(cluster.bootstrap))
    admin.create_topic("replicated", 3)
    assert admin.describe_topic("replicated").replication_factor == 3
    configs = {each.name: each.value for each in admin.describe_configs("replicated")}
    assert configs["min.insync.replicas"] == "2"


def test_the_console_shows_the_cluster(cluster: Up) -> None:
    request = urllib.request.Request(f"{cluster.console_url}/topics", headers={"Accept": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        assert "topics" in json.load(response)


def test_a_broker_that_is_killed_is_reported_and_comes_back_on_its_port(cluster: Up) -> None:
    admin = Admin(Connection(cluster.bootstrap))
    admin.create_topic("bounced", 1)
    produce(cluster.bootstrap, "bounced", ["before"])
    leader = admin.describe_topic("bounced").partitions[0].leader
    victim = cluster.broker(leader)
    os.kill(victim, signal.SIGKILL)
    produce(cluster.bootstrap, "bounced", ["meanwhile"])
    cluster.wait_for(f"broker {leader} was killed by SIGKILL; starting it again in 1 s")
    cluster.wait_for(f"broker {leader} is back")
    assert cluster.broker(leader) != victim
    wait_until(
        lambda: set(admin.describe_topic("bounced").partitions[0].in_sync_replicas) == {1, 2, 3}, "the replica", 60
    )
    found = consume(cluster.addresses[leader - 1], "bounced", 2, timeout_s=30)
    assert [message.value for message in found] == [b"before", b"meanwhile"]


def test_zookeeper_that_is_killed_comes_back_and_the_cluster_goes_on(cluster: Up) -> None:
    server = next(pid for pid, line in descendants(cluster.mark).items() if "QuorumPeerMain" in line)
    os.kill(server, signal.SIGKILL)
    cluster.wait_for("ZooKeeper was killed by SIGKILL; starting it again in 1 s")
    cluster.wait_for("ZooKeeper is back")

    def is_created() -> bool:
        with contextlib.suppress(SkylogError):
            Admin(Connection(cluster.bootstrap, timeout_s=5)).create_topic("afterwards", 1)
        return "afterwards" in {topic.name for topic in Admin(Connection(cluster.bootstrap)).list_topics()}

    wait_until(is_created, "a topic that was created afterwards", START_S)
    produce(cluster.bootstrap, "afterwards", ["hello"])


def test_a_port_in_use_is_named_with_the_fix(cluster: Up, tmp_path: Path) -> None:
    port = cluster.addresses[1].rpartition(":")[2]
    message = refused("--data-dir", str(tmp_path), "--brokers", "1", "--port", port)
    assert f"error: port {port} is in use; stop the other process, choose another --port, or use --port 0" in message
    message = refused(
        "--data-dir", str(tmp_path), "--port", "0", "--console-port", cluster.console_url.rpartition(":")[2]
    )
    assert "choose another --console-port" in message


def test_a_second_run_continues_with_the_same_data_and_ports_and_nothing_outlives_either(tmp_path: Path) -> None:
    needs_java()
    with running(tmp_path / "data", "--brokers", "2", "--port", "0", "--no-console") as first:
        produce(first.bootstrap, "kept", ["a"])
        assert "console at" not in first.said()
        assert first.stop(signal.SIGHUP) == ""
        wait_for_the_last(first.mark, 5)
    logs = [(tmp_path / "data" / f"broker-{node_id}.log").read_text() for node_id in (1, 2)]
    assert all(f"broker {node_id} has stopped" in log for node_id, log in enumerate(logs, 1))
    with running(tmp_path / "data", "--no-console") as second:
        assert second.bootstrap == first.bootstrap
        assert [message.value for message in consume(second.bootstrap, "kept", 1, timeout_s=30)] == [b"a"]
        message = refused("--data-dir", str(tmp_path / "data"), "--no-console", "--port", "0")
        assert "is in use by another cluster; stop that one or choose another --data-dir" in message
        second.process.kill()
        wait_for_the_last(second.mark, 20)


def test_a_second_signal_kills_everything_at_once(tmp_path: Path) -> None:
    needs_java()
    with running(tmp_path / "data", "--brokers", "1", "--port", "0", "--no-console") as up:
        os.kill(up.broker(1), signal.SIGSTOP)  # it does not stop cleanly
        up.process.send_signal(signal.SIGINT)
        up.wait_for("another Ctrl-C kills everything")
        up.process.send_signal(signal.SIGINT)
        assert up.process.wait(20) == -signal.SIGINT
        wait_for_the_last(up.mark, 20)


def test_a_mistake_in_a_setting_is_reported_before_anything_starts(tmp_path: Path) -> None:
    home = tmp_path / "data"
    assert "num.partitions" in refused("--data-dir", str(home), "--set", "num.partitionz=3")
    assert "--set node.id: each broker" in refused("--data-dir", str(home), "--set", "node.id=3")
    assert "expected debug, info, warning or error" in refused("--data-dir", str(home), "--log-level", "loud")
    assert not home.exists()


@pytest.mark.skipif(not HAS_SPARK, reason="pip install -e '.[spark]'")
def test_without_java_the_error_says_what_to_install(tmp_path: Path) -> None:
    options = ["--data-dir", str(tmp_path), "--port", "0", "--no-console"]
    message = refused(*options, PATH=str(tmp_path), JAVA_HOME="")
    assert "error: ZooKeeper requires Java 17 or later, but none was found: install one" in message
