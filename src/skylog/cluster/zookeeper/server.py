"""Runs a real ZooKeeper server, from the jars that PySpark installs. For development, tests and benchmarks.

The data directory has the server's configuration, its transaction log and snapshots, and its log of warnings and
errors. Every transaction is on disk before it is answered, so it is safe to kill the server at any time.
"""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import os
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Final, Self

from skylog.bound_process import BoundProcess
from skylog.cluster.zookeeper.server_security import ServerSecurity
from skylog.errors import SkylogError
from skylog.java import RequirementError, check_java, find_java

LOG_NAME: Final = "zookeeper.log"
_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.02
_ATTEMPTS: Final = 5  # to find a free port that nobody else takes before the server does
_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_REACHABLE: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}

# The few jars that ZooKeeper needs come first: searching all of Spark's for each class doubles the time to start.
_FIRST_JARS: Final = ("zookeeper", "slf4j-api", "log4j", "metrics-core", "snappy-java", "netty", "commons-io")
_JVM_OPTIONS: Final = (
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dzookeeper.preAllocSize=4096",
    "-Dlog4j2.configurationFile=log4j2.properties",
)
_CONFIG: Final = """\
dataDir=./data
{ports}
tickTime=500
maxSessionTimeout=60000
maxClientCnxns=0
4lw.commands.whitelist=srvr
autopurge.purgeInterval=1
"""
_LOG_CONFIG: Final = """\
status=error
appender.err.type=Console
appender.err.name=err
appender.err.target=SYSTEM_ERR
appender.err.layout.type=PatternLayout
appender.err.layout.pattern=%d %-5p %c{1}: %m%n%xEx{5}
rootLogger.level=warn
rootLogger.appenderRef.err.ref=err
logger.start.name=org.apache.zookeeper.server.quorum
logger.start.level=error
logger.factory.name=org.apache.zookeeper.server.ServerCnxnFactory
logger.factory.level=error
"""


class ZooKeeperServer:
    """A standalone ZooKeeper server that can be stopped, killed and started again on its port and data directory.

        with ZooKeeperServer(Path("zk")) as server:
            session = await open_zookeeper(server.address, session_timeout_ms=6000, connection_timeout_ms=6000)

    Port 0 picks a free port, which is then kept. The kernel kills the server when this process ends, however it ends.
    """

    def __init__(
        self,
        data_dir: Path,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        inherited: Sequence[int] = (),
        security: ServerSecurity | None = None,
    ) -> None:
        """`inherited` are descriptors that the server keeps open, such as that of a lock."""
        self._security = security
        self.data_dir = data_dir
        self._inherited = inherited
        self.host = host
        self.port = port
        self._process: BoundProcess | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running

    @property
    def pid(self) -> int:
        return self._started().pid

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._started().exit_code

    def start(self) -> Self:
        """Start or restart the server; returns when it answers. Raises SkylogError with the reason if it does not."""
        if self.is_running:
            raise SkylogError(f"ZooKeeper at {self.address} is running already")
        with _lock(self.data_dir) as lock:
            for attempt in range(_ATTEMPTS):
                port = _bindable_port(self.host, self.port)
                if self._start_on(port, lock, is_last=self.port != 0 or attempt == _ATTEMPTS - 1):
                    self.port = port
                    break
        return self

    def stop(self) -> None:
        """Stop the server, if it is running."""
        if self.is_running:
            self._started().stop(_STOP_TIMEOUT_S)

    def kill(self) -> None:
        """Kill the process, like a crash: SIGKILL."""
        self._started().kill()

    def wait(self) -> None:
        """Wait until the server has ended."""
        self._started().wait()

    def log(self) -> str:
        """Return its warnings and errors, over all starts."""
        return (self.data_dir / LOG_NAME).read_text(errors="replace")

    def _start_on(self, port: int, lock: IO[bytes], *, is_last: bool) -> bool:
        """Return whether the server answers on this port; False if another process took it first."""
        (self.data_dir / "zoo.cfg").write_text(_CONFIG.format(ports=self._ports(port)))
        (self.data_dir / "log4j2.properties").write_text(_LOG_CONFIG)
        options = [*_JVM_OPTIONS, *(self._security.prepare(self.data_dir) if self._security else ())]
        command = [find_java("ZooKeeper"), *options, "-cp", _class_path(), _MAIN, "./zoo.cfg"]
        with open(self.data_dir / LOG_NAME, "ab") as output:
            before = output.tell()
            directory = str(self.data_dir.resolve())
            inherited = [lock.fileno(), *self._inherited]
            self._process = BoundProcess(command, directory=directory, output=output, inherited=inherited)
        try:
            if self._answers_on(port):
                return True
        except BaseException:
            self.kill()
            raise
        self.kill()
        reason = (self.data_dir / LOG_NAME).read_bytes()[before:].decode(errors="replace").strip()
        if "BindException" in reason and not is_last:
            return False
        check_java("ZooKeeper")
        raise SkylogError(f"ZooKeeper did not start; the end of {self.data_dir / LOG_NAME}: {reason[-1000:]}")

    def _answers_on(self, port: int) -> bool:
        """Wait until the server answers. Return False if it ends before."""
        address = (_REACHABLE.get(self.host, self.host), port)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            if _is_serving(address, self._security):
                return self.is_running  # or another server took the port
            if self._started().wait(_POLL_S):
                return False
        raise SkylogError(f"ZooKeeper did not answer on {address[0]}:{port} within {_START_TIMEOUT_S:.0f} s")

    def _ports(self, port: int) -> str:
        if self._security is not None:
            return self._security.config(self.host, port)
        return f"clientPortAddress={self.host}\nclientPort={port}"

    def _started(self) -> BoundProcess:
        if self._process is None:
            raise SkylogError("ZooKeeper has not been started")
        return self._process


def _class_path() -> str:
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        reason = "ZooKeeper runs from the jars of PySpark, but pyspark is missing"
        raise RequirementError(f"{reason}: pip install 'skylog[spark]' (and Java 17)")
    jars = Path(found.submodule_search_locations[0]) / "jars"
    if not any(jars.glob("zookeeper-*.jar")):
        raise RequirementError(f"{jars} has no ZooKeeper: pip install --upgrade 'skylog[spark]'")
    first = [str(jar) for name in _FIRST_JARS for jar in sorted(jars.glob(f"{name}-*.jar"))]
    return os.pathsep.join([*first, str(jars / "*")])


def _lock(data_dir: Path) -> IO[bytes]:
    """Make the directory, and lock it for as long as the returned file, or a copy that the server inherits, is open."""
    try:
        (data_dir / "data").mkdir(parents=True, exist_ok=True)
        file = open(data_dir / ".lock", "wb")  # noqa: SIM115 # the caller closes it
    except OSError as error:
        reason = error.strerror or error
        raise SkylogError(f"{data_dir} cannot be a data directory: {reason}; choose another --data-dir") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise SkylogError(f"{data_dir} is in use by another ZooKeeper; choose another --data-dir") from None
    return file


def _bindable_port(host: str, port: int) -> int:
    """Return the port, or a free one for 0. Raises SkylogError if it is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            hint = "; choose another --port" if error.errno == errno.EADDRINUSE else "; check --host and --port"
            raise SkylogError(f"cannot listen on {host}:{port}: {error.strerror or error}{hint}") from error
        return int(listener.getsockname()[1])


def _is_serving(address: tuple[str, int], security: ServerSecurity | None) -> bool:
    try:
        with ExitStack() as stack:
            connection = stack.enter_context(socket.create_connection(address, timeout=5.0))
            if security is not None:
                connection = stack.enter_context(security.own_context().wrap_socket(connection))
            connection.sendall(b"srvr")
            return b"Mode: " in connection.recv(4096)
    except OSError:
        return False
