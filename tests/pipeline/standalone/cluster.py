"""A Spark standalone cluster on this machine: a master and workers, as processes, from PySpark's jars."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Final, Self

import pyspark

from skylog.java import find_java
from skylog.testing import wait_until
from tests.proof import proof

PATIENCE_S: Final = 300
WORKERS: Final = proof(2, usual=1)  # each is two JVMs
IN_NAMESPACE: Final = ("unshare", "--mount", "--map-root-user")
_HIDE: Final = 'mount -t tmpfs none "$0" && mkdir -p "$1" && cd "$1" && shift && exec "$@"'
_ADDRESS: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED: Final = "Successfully registered with master"
_SPARK: Final = Path(pyspark.__file__).parent
_CLASSES: Final = "org.apache.spark.deploy"


class StandaloneCluster:
    """Runs while the `with` block does. Each worker has one core, and a working directory of its own.

    Workers see an empty file system in the place of `hidden`, in which the driver and its files should be, and where
    their own directories are. Their executors are their child processes, and see the same.
    """

    def __init__(self, directory: Path, hidden: Path | None = None) -> None:
        self.address = ""
        self._directory = directory
        self._hidden = hidden
        self._stack = ExitStack()
        self._workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        with self._stack:
            log = self._start("master", "master.Master", "--host", "127.0.0.1", "--port", "0")
            (self.address,) = wait_until(lambda: _ADDRESS.findall(log.read_text()), "the master", PATIENCE_S)
            options = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g")
            logs = [
                self._start(f"worker-{number}", "worker.Worker", *options, self.address, is_worker=True)
                for number in range(WORKERS)
            ]
            wait_until(lambda: all(_REGISTERED in each.read_text() for each in logs), "the workers", PATIENCE_S)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def options(self) -> list[str]:
        """The options of a command that runs on the cluster, with an executor on each worker."""
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.executor.memory": "512m",
            "spark.sql.shuffle.partitions": "2",
        }
        return ["--master", self.address, *(part for pair in settings.items() for part in ("--conf", "=".join(pair)))]

    @property
    def worker_pids(self) -> list[int]:
        return [process.pid for process in self._workers]

    def _start(self, name: str, class_name: str, *arguments: str, is_worker: bool = False) -> Path:
        """Start a daemon, and return the file of its log."""
        home = self._directory / name
        log = self._directory / f"{name}.log"
        java = [find_java("Spark"), "-Xmx256m", "-cp", f"{_SPARK}/jars/*", f"{_CLASSES}.{class_name}"]
        command: Sequence[str] = [*java, "--webui-port", "0", *arguments]
        if is_worker:
            command = [*command, "--work-dir", str(home)]
        if is_worker and self._hidden is not None:
            command = [*IN_NAMESPACE, "sh", "-c", _HIDE, str(self._hidden), str(home), *command]
        else:
            home.mkdir()
        with log.open("wb") as out:
            process = self._stack.enter_context(_running(command, out, self._directory))
        if is_worker:
            self._workers.append(process)
        return log


@contextmanager
def _running(command: Sequence[str], out: IO[bytes], directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    variables = {**os.environ, "SPARK_HOME": str(_SPARK), "SPARK_SCALA_VERSION": "2.13"}  # as Spark's scripts set it
    process = subprocess.Popen(command, stdout=out, stderr=out, cwd=directory, env=variables)
    try:
        yield process
    finally:
        process.terminate()  # a worker ends its executors
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
