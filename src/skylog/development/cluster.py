"""A cluster on this machine: ZooKeeper, brokers and a console, each in a process of its own.

    with DevelopmentCluster(Path("data"), ClusterPlan(brokers=3, port=0)) as cluster:
        producer = Producer(cluster.bootstrap)

The directory has everything that the next run continues with:

    zookeeper/      ZooKeeper's data and log
    broker-1/       the data directory of broker 1
    broker-1.log    its log
    console.log     the console's log
    cluster.json    the ports
    secrets/        certificates and passwords, if it is secured

All processes end with this one, however it ends. Until then they are supervised: one that dies is started again.
"""

from __future__ import annotations

import fcntl
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, Final, Self

from skylog.client import Connection
from skylog.client.kafka_settings import read_client_config
from skylog.cluster.image import NO_CONTROLLER
from skylog.cluster.zookeeper.server import ZooKeeperServer
from skylog.development.cluster_broker import ClusterBroker
from skylog.development.cluster_console import ClusterConsole, open_console
from skylog.development.plan import DEFAULT_BROKERS, ClusterPlan
from skylog.development.ports import ANY_PORT, HOST, ClusterPorts, choose_ports, is_free
from skylog.development.supervisor import ReportEvent, SupervisedPart, Supervisor
from skylog.development.zookeeper_security import security_of
from skylog.errors import SkylogError
from skylog.security.development_set import CLIENT, CLUSTER, is_development_set, write_development_set

RESTART_AFTER_S: Final = 1.0
_LOCK: Final = ".lock"
_LOCK_PATIENCE_S: Final = 3.0  # processes of a run that was killed end a moment later
_FORM_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.05


def _ignore(_: str) -> None:
    pass


class DevelopmentCluster:
    """Brokers with the node ids 1 to `len(brokers)`. Start and stop it from one thread.

    `report` is called, from any thread, with a line about each step and about each process that dies or is back. A
    process that dies is started again after `restart_after_s`.
    """

    def __init__(
        self,
        data_dir: Path,
        plan: ClusterPlan | None = None,
        *,
        restart_after_s: float = RESTART_AFTER_S,
        report: ReportEvent = _ignore,
    ) -> None:
        self.data_dir = data_dir
        self._plan = plan or ClusterPlan()
        self._secrets = None if self._plan.secrets is None else self._plan.secrets.absolute()
        self._restart_after_s = restart_after_s
        self._report = report
        self._lock: IO[bytes] | None = None
        self._listener: socket.socket | None = None
        self._zookeeper: ZooKeeperServer | None = None
        self._supervisors: dict[str, Supervisor] = {}
        self.console: ClusterConsole | None = None
        self.brokers: dict[int, ClusterBroker] = {}

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, for a client's `bootstrap.servers`."""
        return ",".join(broker.address for broker in self.brokers.values())

    @property
    def zookeeper(self) -> str:
        """The address of ZooKeeper, once it has been started."""
        assert self._zookeeper is not None
        return self._zookeeper.address

    @property
    def client_settings(self) -> dict[str, object]:
        """How a super user connects to the brokers, with librdkafka's names; none if the cluster is not secured."""
        path = self.client_file
        return {"security.protocol": "PLAINTEXT"} if path is None else read_client_config(path)

    @property
    def client_file(self) -> Path | None:
        """The settings of a super user's client, if the cluster is secured."""
        return self._file(CLIENT)

    def _file(self, name: str) -> Path | None:
        return None if self._secrets is None else self._secrets / name

    # -- starting

    def start(self) -> Self:
        """Start all processes. Returns when the brokers have formed a cluster. Raises SkylogError with the fix."""
        self._plan.check()
        lock = self._take_lock()
        if self._secrets is not None and not is_development_set(self._secrets):
            self._report(f"writing certificates and passwords to {self._secrets}")
            write_development_set(self._secrets)
        ports = ClusterPorts.read(self.data_dir)
        count = self._plan.brokers or len(ports.brokers) or DEFAULT_BROKERS
        for node_id, port in enumerate(choose_ports(count, self._plan.port, ports.brokers), 1):
            self.brokers[node_id] = ClusterBroker(node_id, port, self.data_dir, lock.fileno())
        if self._plan.has_console:
            self._listener = open_console(self._plan.console_port, ports.console)
        zookeeper = self._start_zookeeper(ports.zookeeper, lock.fileno())
        self._start_brokers(count)
        if self._listener is not None:
            self.console = ClusterConsole(self.data_dir, self._listener, self.bootstrap, self.client_file)
            self.console.start()
            self._supervise("the console", self.console)
        console_port = ports.console if self.console is None else self.console.port
        used = [broker.port for broker in self.brokers.values()]
        ClusterPorts(zookeeper.port, console_port, (*used, *ports.brokers[count:])).write(self.data_dir)
        return self

    def _take_lock(self) -> IO[bytes]:
        """Lock the directory. The processes inherit the lock, so that it lasts as long as any of them."""
        if (self.data_dir / "meta.properties").exists():
            raise SkylogError(f"{self.data_dir} is the data directory of a single broker; choose another --data-dir")
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            self._lock = file = open(self.data_dir / _LOCK, "wb")  # noqa: SIM115 # closed by `stop`
        except OSError as error:
            raise SkylogError(f"cannot use --data-dir {self.data_dir}: {error.strerror}") from error
        deadline = time.monotonic() + _LOCK_PATIENCE_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise SkylogError(
                        f"{self.data_dir} is in use by another cluster; stop that one or choose another --data-dir"
                    ) from None
                time.sleep(_POLL_S)
            else:
                return file

    def _start_zookeeper(self, port: int, lock: int) -> ZooKeeperServer:
        self._report("starting ZooKeeper")
        port = port if is_free(port) else ANY_PORT
        server = self._zookeeper = ZooKeeperServer(
            self.data_dir / "zookeeper",
            HOST,
            port,
            inherited=[lock],
            security=None if self._secrets is None else security_of(self._secrets),
        )
        server.start()
        self._supervise("ZooKeeper", server)
        return server

    def _start_brokers(self, count: int) -> None:
        self._report(f"starting {count} brokers" if count > 1 else "starting a broker")
        settings = self._plan.broker_settings(count)
        for broker in self.brokers.values():
            broker.configure(self.zookeeper, settings, self._plan.log_level, self._file(CLUSTER))
        _start_all(self.brokers.values())
        self._wait_until_formed()
        for node_id, broker in self.brokers.items():
            self._supervise(f"broker {node_id}", broker)

    def _supervise(self, name: str, part: SupervisedPart) -> None:
        supervisor = self._supervisors[name] = Supervisor(name, part, self._restart_after_s, self._report)
        supervisor.begin()

    def _wait_until_formed(self) -> None:
        """Wait until every broker knows all others and the controller."""
        deadline = time.monotonic() + _FORM_TIMEOUT_S
        waiting, login = list(self.brokers.values()), self.client_settings
        while waiting := [
            broker for broker in waiting if not self.brokers.keys() <= _known_brokers(broker.address, login)
        ]:
            if time.monotonic() > deadline:
                names = ", ".join(broker.address for broker in waiting)
                raise SkylogError(f"the brokers did not form a cluster within {_FORM_TIMEOUT_S:.0f} s: see {names}")
            time.sleep(_POLL_S)

    # -- failing and stopping

    def kill(self, node_id: int) -> None:
        """Kill a broker, like a crash: SIGKILL. It is started again after `restart_after_s`."""
        self.brokers[node_id].kill()

    def abort(self) -> None:
        """Kill everything at once, like a crash of the machine."""
        for supervisor in self._supervisors.values():
            supervisor.abandon()
        for part in (*self.brokers.values(), self.console, self._zookeeper):
            if part is not None and part.is_running:
                part.kill()

    def stop(self) -> None:
        """Stop everything that runs: first the brokers, all at once, and then ZooKeeper."""
        ends: dict[str, Callable[[], None]] = {f"broker {id_}": broker.stop for id_, broker in self.brokers.items()}
        if self.console is not None:
            ends["the console"] = self.console.stop
        ends |= {name: self._supervisors[name].stop for name in ends.keys() & self._supervisors.keys()}
        _at_once(_call, ends.values())
        if self._zookeeper is not None:
            self._supervisors.get("ZooKeeper", self._zookeeper).stop()
        if self._listener is not None:
            self._listener.close()
        if self._lock is not None:
            self._lock.close()


def _start_all(brokers: Collection[ClusterBroker]) -> None:
    """Start brokers, in parallel. If one does not start, or Ctrl-C comes, stop also those that are launched only then.

    Ctrl-C may come while a thread is handed over, so the threads themselves say that they are at work.
    """
    at_work: set[int] = set()
    is_over = threading.Event()

    def start(broker: ClusterBroker) -> None:
        at_work.add(broker.node_id)
        try:
            if not is_over.is_set():
                _start_named(broker)
        finally:
            at_work.remove(broker.node_id)

    threads = ThreadPoolExecutor(thread_name_prefix="cluster")
    try:
        for each in [threads.submit(start, broker) for broker in brokers]:
            each.result()
    except BaseException:
        is_over.set()
        while at_work:
            for broker in brokers:
                broker.stop()
            time.sleep(_POLL_S)
        raise
    finally:
        threads.shutdown(wait=False)


def _start_named(broker: ClusterBroker) -> None:
    try:
        broker.start()
    except SkylogError as error:
        raise SkylogError(f"broker {broker.node_id} did not start: {error}") from error


def _call(action: Callable[[], None]) -> None:
    action()


def _at_once(action: Callable[[Any], object], targets: Iterable[Any]) -> None:
    """Call a function for each target, in parallel. Waits for all of them, then raises the first exception."""
    with ThreadPoolExecutor(thread_name_prefix="cluster") as threads:
        started = [threads.submit(action, target) for target in targets]
    for each in started:
        each.result()


def _known_brokers(address: str, login: Mapping[str, object]) -> set[int]:
    """The brokers that the one at this address knows; none while it knows of no controller."""
    connection = Connection(address, login)
    found = connection.metadata(connection.admin_client())
    return set() if found.controller_id == NO_CONTROLLER else set(found.brokers)
