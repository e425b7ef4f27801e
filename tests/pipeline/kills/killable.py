"""A job on a Spark cluster, as a command, any of whose processes can be killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from tests.descendants import below
from tests.pipeline.standalone.cluster import StandaloneCluster

VICTIMS: Final = ("driver", "driver's JVM", "executor", "Python worker")
_EXECUTOR: Final = "CoarseGrainedExecutorBackend"
_PYTHON: Final = "pyspark.daemon"


class KillableJob:
    """`skylog pipeline run …` as a process, which starts with the block and is killed at its end."""

    def __init__(self, arguments: Sequence[str], cluster: StandaloneCluster, directory: Path, log: Path) -> None:
        self._cluster = cluster
        self._log = log
        command = [sys.executable, "-m", "skylog.cli.main", "pipeline", "run", *arguments, "--once", *cluster.options]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=output, cwd=directory, start_new_session=True
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # also the JVM that a killed driver has left
        self._process.wait()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait(self, seconds: float) -> int:
        return self._process.wait(seconds)

    def log(self) -> str:
        """The end of what all runs have printed."""
        return self._log.read_text()[-4000:]

    def kill(self, victim: str, drawn: random.Random) -> bool:
        """Send SIGKILL to a process of that kind. Return False if there is none now."""
        found = self._pids(victim) if self.is_running else []
        if not found:
            return False
        with suppress(ProcessLookupError):
            os.kill(drawn.choice(found), signal.SIGKILL)
        return True

    def _pids(self, victim: str) -> list[int]:
        if victim == "driver":
            return [self._process.pid]
        if victim == "driver's JVM":
            return [pid for pid, command in below(self._process.pid).items() if "org.apache.spark.deploy" in command]
        sign = _EXECUTOR if victim == "executor" else _PYTHON
        return [pid for pid, command in below(*self._cluster.worker_pids).items() if sign in command]
