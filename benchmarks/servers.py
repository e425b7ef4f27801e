"""Processes under test: starts them, pins them to a core, reads address, CPU time and memory, stops them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

SERVER_CORE = 0
GENERATOR_CORE = 1
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def pin(pid: int, core: int) -> None:
    """Pin a process to one core. Does nothing on a machine with a single core."""
    if (os.cpu_count() or 1) > core:
        os.sched_setaffinity(pid, {core})


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, of all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


class Server:
    """A server process that prints `listening on HOST:PORT`; stopped and reaped at the end of the `with` block."""

    def __init__(
        self, arguments: list[str], *, core: int | None = SERVER_CORE, environment: Mapping[str, str] | None = None
    ) -> None:
        self.started_at = time.perf_counter()
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed with the object; read if the start fails
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=self.log, text=True, env=environment)
        self.pid = self.process.pid
        if core is not None:
            pin(self.pid, core)
        self.address = self._wait_for_address()

    def _wait_for_address(self) -> tuple[str, int]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if match := re.search(r"listening on (\S+):(\d+)", line):
                return match[1], int(match[2])
        self.log.seek(0)
        raise RuntimeError(f"{self.process.args!r} ended before it listened:\n{self.log.read()[-2000:]}")

    @property
    def bootstrap(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def cpu_seconds(self) -> float:
        """User and system time so far, of all threads."""
        return cpu_seconds(self.pid)

    def run_time_ns(self) -> int:
        """The time that its living threads have run so far, in nanoseconds."""
        threads = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads)

    def age(self) -> float:
        """Seconds since the process was created."""
        return time.perf_counter() - self.started_at

    def rss_bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE_BYTES

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()


def bare_server(path: Path, patch_at: int, *, read_bytes: int = 0, style: str = "raw", loop: str = "uvloop") -> Server:
    options = {"file": path, "patch-at": patch_at, "read-bytes": read_bytes, "style": style, "loop": loop}
    arguments = [f"--{name}={value}" for name, value in options.items()]
    return Server([sys.executable, "-m", "benchmarks.bare_server", *arguments])


def broker(data_dir: Path, *options: str, core: int | None = SERVER_CORE) -> Server:
    """Start a broker, without a console unless `options` request one."""
    skylog = str(Path(sys.executable).with_name("skylog"))
    arguments = [
        skylog,
        "serve",
        "--data-dir",
        str(data_dir),
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--no-console",
        *options,
    ]
    return Server(arguments, core=core)
