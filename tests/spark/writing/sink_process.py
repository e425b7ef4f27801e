"""A driver of `sink_job` as a process, with the processes below it, any of which can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

from tests.spark.chance import chance


class SinkJob:
    """Runs from the beginning of the block; what is left of it at the end is killed."""

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
        below = _descendants(self._process.pid)
        workers = [pid for pid, command in below.items() if "pyspark" in command and "java" not in command]
        javas = [pid for pid, command in below.items() if "java" in command]
        pids = {
            "driver": [self._process.pid],
            "java": javas[:1],
            "worker": chance().sample(workers, min(len(workers), 1)),
            "all": [self._process.pid, *below],
        }[victim]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:  # ended by itself
                continue
        return bool(pids)


def _descendants(pid: int) -> dict[int, str]:
    """The command lines of all processes that this one has started, directly or not."""
    parents, commands = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            commands[int(path.name)] = (path / "cmdline").read_text()
        except OSError:
            continue
        parents[int(path.name)] = int(fields[1])
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return {each: commands[each] for each in found[1:]}
