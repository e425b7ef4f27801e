"""Clusters on this machine, by default of three brokers: skylog (on ZooKeeper) and Apache Kafka (KRaft, from Maven)."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol, Self

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.page_cache import full_page_cache
from benchmarks.report import progress
from skylog.cluster.zookeeper.server import ZooKeeperServer

BROKERS = 3
KAFKA_VERSION = "4.1.0"
SETTINGS = {
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
}
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
_KAFKA_HEAP = "1G"
START_S = 90


class BrokerCluster(Protocol):
    """Brokers by node id, from 1 on."""

    name: str
    size: int
    ports: dict[int, int]

    @property
    def bootstrap(self) -> str: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def kill(self, node_id: int) -> None: ...
    def stop(self, node_id: int) -> None: ...
    def start(self, node_id: int) -> None: ...
    def data_dir(self, node_id: int) -> Path: ...
    def cpu_seconds(self) -> float: ...
    def rss_bytes(self) -> int: ...


class Processes:
    """The broker processes of a cluster. A subclass has the command that starts one."""

    def __init__(self, directory: Path, size: int = BROKERS, settings: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.size = size
        self.ports = dict(zip(range(1, size + 1), _free_ports(size), strict=True))
        self.settings = {
            **SETTINGS,
            "default.replication.factor": str(size),
            "offsets.topic.replication.factor": str(size),
            "transaction.state.log.replication.factor": str(size),
            "transaction.state.log.min.isr": str(size // 2 + 1),
            "min.insync.replicas": str(size // 2 + 1),
            **(settings or {}),
        }
        self.environment: dict[str, str] | None = None
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def command(self, node_id: int) -> list[str]:
        raise NotImplementedError

    def data_dir(self, node_id: int) -> Path:
        raise NotImplementedError

    def start(self, node_id: int) -> None:
        with (self.directory / f"broker-{node_id}.log").open("ab") as log:
            self._processes[node_id] = subprocess.Popen(
                self.command(node_id), stdout=log, stderr=log, env=self.environment
            )

    def start_all(self) -> None:
        for node_id in self.ports:
            self.start(node_id)
        wait_until(lambda: count_brokers(self.bootstrap) == self.size, START_S, "the brokers have joined")

    def kill(self, node_id: int) -> None:
        self._processes[node_id].send_signal(signal.SIGKILL)
        self._processes.pop(node_id).wait()

    def stop(self, node_id: int) -> None:
        """Let a broker stop cleanly."""
        process = self._processes.pop(node_id)
        process.terminate()
        process.wait(60)

    def stop_all(self) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()

    def cpu_seconds(self) -> float:
        """User and system time of all brokers so far."""
        return sum(_cpu_seconds(process.pid) for process in self._processes.values())

    def rss_bytes(self) -> int:
        page_bytes = os.sysconf("SC_PAGE_SIZE")
        pages = (Path(f"/proc/{each.pid}/statm").read_text().split()[1] for each in self._processes.values())
        return sum(int(count) for count in pages) * page_bytes


class SkylogCluster(Processes):
    """Brokers of this checkout, or of another one whose `src` directory is `source`."""

    name = "skylog"

    _zookeeper: ZooKeeperServer | None = None

    def __init__(
        self,
        directory: Path,
        size: int = BROKERS,
        settings: Mapping[str, str] | None = None,
        source: Path | None = None,
    ) -> None:
        super().__init__(directory, size, settings)
        if source is not None:
            self.environment = os.environ | {"PYTHONPATH": str(source)}

    def __enter__(self) -> Self:
        if self.size > 1:
            self._zookeeper = ZooKeeperServer(self.directory / "zookeeper").start()
        self.start_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_all()
        if self._zookeeper is not None:
            self._zookeeper.stop()

    def command(self, node_id: int) -> list[str]:
        settings = self.settings | {"node.id": str(node_id)}
        return [
            sys.executable,
            "-P",
            "-m",
            "skylog",
            "serve",
            *([] if self._zookeeper is None else [f"--zookeeper={self._zookeeper.address}"]),
            f"--data-dir={self.data_dir(node_id)}",
            f"--port={self.ports[node_id]}",
            "--no-console",
            *(f"--set={key}={value}" for key, value in settings.items()),
        ]

    def data_dir(self, node_id: int) -> Path:
        return self.directory / f"broker-{node_id}"


class KafkaCluster(Processes):
    """Apache Kafka with its default options for the JVM, each node both broker and controller."""

    name = f"Apache Kafka {KAFKA_VERSION}"

    def __init__(
        self,
        directory: Path,
        jars: Sequence[Path],
        size: int = BROKERS,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory, size, settings)
        self._controllers = dict(zip(self.ports, _free_ports(size), strict=True))
        self._java = ["java", "-cp", ":".join(map(str, jars))]
        # The options of Kafka's own kafka-server-start.sh and kafka-run-class.sh.
        self._server_java = [
            "java",
            f"-Xmx{_KAFKA_HEAP}",
            f"-Xms{_KAFKA_HEAP}",
            "-server",
            "-XX:+UseG1GC",
            "-XX:MaxGCPauseMillis=20",
            "-XX:InitiatingHeapOccupancyPercent=35",
            "-XX:+ExplicitGCInvokesConcurrent",
            *self._java[1:],
        ]

    def __enter__(self) -> Self:
        for node_id in self.ports:
            self._properties(node_id).write_text(self._settings(node_id))
            tool = [*self._java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID]
            subprocess.run([*tool, "-c", str(self._properties(node_id))], check=True, capture_output=True)
        self.start_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_all()

    def command(self, node_id: int) -> list[str]:
        return [*self._server_java, "kafka.Kafka", str(self._properties(node_id))]

    def data_dir(self, node_id: int) -> Path:
        return self.directory / f"data-{node_id}"

    def _properties(self, node_id: int) -> Path:
        return self.directory / f"broker-{node_id}.properties"

    def _settings(self, node_id: int) -> str:
        voters = ",".join(f"{each}@127.0.0.1:{port}" for each, port in self._controllers.items())
        plain = f"PLAINTEXT://127.0.0.1:{self.ports[node_id]}"
        settings = self.settings | {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "controller.quorum.voters": voters,
            "listeners": f"{plain},CONTROLLER://127.0.0.1:{self._controllers[node_id]}",
            "advertised.listeners": plain,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data_dir(node_id)),
        }
        return "".join(f"{key}={value}\n" for key, value in settings.items())


@contextmanager
def both(
    parent: Path, size: int = BROKERS, settings: Mapping[str, str] | None = None, *, is_quick: bool = False
) -> Iterator[tuple[list[BrokerCluster], str]]:
    """Run both clusters, or skylog's alone where Kafka cannot be had, with the reason. Their files go to `parent`.

    The page cache is full meanwhile. That takes up to a minute, so a quick run goes without.
    """
    from tests.spark.peers.jars import NoJarsError, broker_jars

    clusters: list[BrokerCluster] = []
    note = ""
    with ExitStack() as stack:
        work_dir = Path(tempfile.mkdtemp(prefix="skylog-clusters-", dir=parent))
        stack.callback(shutil.rmtree, work_dir, ignore_errors=True)
        for name in ("skylog", "kafka"):
            (work_dir / name).mkdir()
        if not is_quick:
            progress("filling the page cache")
            stack.enter_context(full_page_cache(work_dir))
        clusters.append(stack.enter_context(SkylogCluster(work_dir / "skylog", size, settings)))
        try:
            clusters.append(stack.enter_context(KafkaCluster(work_dir / "kafka", broker_jars(), size, settings)))
        except NoJarsError as error:
            note = str(error)
        yield clusters, note


def create_topic(cluster: BrokerCluster, topic: str, partitions: int) -> None:
    """Create a topic with a replica on each broker, and wait until all of them are in sync."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, cluster.size)])[topic].result(30)

    def is_in_sync() -> bool:
        found = admin.list_topics(topic, timeout=10).topics[topic].partitions
        return len(found) == partitions and all(len(each.isrs) == cluster.size for each in found.values())

    wait_until(is_in_sync, 60, f"the replicas of {topic} are in sync")


def leader_of(cluster: BrokerCluster, topic: str, partition: int = 0) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    return int(admin.list_topics(topic, timeout=10).topics[topic].partitions[partition].leader)


def count_brokers(bootstrap: str) -> int:
    from confluent_kafka import KafkaException

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        return len(admin.list_topics(timeout=2).brokers)
    except KafkaException:
        return 0


def wait_until(condition: Callable[[], bool], seconds: float, what: str, every_s: float = 0.1) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {seconds:g} s")
        time.sleep(every_s)


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / _TICKS_PER_SECOND


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
