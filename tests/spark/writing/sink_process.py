"""A driver of `sink_job` as a process, with the processes below it, any of which can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Self

from tests.descendants import below
from tests.spark.chance import chance


class SinkJob:
    """A process that starts with the block, and is killed with its children at the end."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "tests.spark.writing.sink_job", *map(str, arguments)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill("all")
        self._process.wait()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait(self, seconds: float) -> int:
        return self._process.wait(seconds)

    def kill(self, victim: str) -> bool:
        """Whether there was such a process. A driver leaves its JVM behind, and a JVM its Python workers."""
        if not self.is_running:  # its number may be another's by now
            return False
        found = below(self._process.pid)
        workers = [pid for pid, command in found.items() if "pyspark" in command and "java" not in command]
        javas = [pid for pid, command in found.items() if "java" in command]
        pids = {
            "driver": [self._process.pid],
            "java": javas[:1],
            "worker": chance().sample(workers, min(len(workers), 1)),
            "all": [self._process.pid, *found],
        }[victim]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:  # ended by itself
                continue
        return bool(pids)
