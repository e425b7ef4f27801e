"""Brokers to test against: `skylog serve` as a process of its own, or a `Broker` on a thread of this process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import uvloop

from skylog.broker import Broker, ServerConfig
from skylog.storage.files import LogFile, OpenFile

SKYLOG = Path(sys.executable).with_name("skylog")
STARTED = "listening on "


def until(condition: Callable[[], Any], what: str, seconds: float = 20.0) -> Any:
    """Wait for `condition` to be truthy and return what it gave; fail with `what` was awaited."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.01)


class BrokerProcess:
    """A `skylog serve` that can be stopped, killed and started again on its port and data directory."""

    def __init__(self, data_dir: Path, settings: Mapping[str, str] | None = None, port: int = 0) -> None:
        self.data_dir = data_dir
        self.settings = dict(settings or {})
        self.port = port
        self._process: subprocess.Popen[str] | None = None
        self._stderr_path = data_dir.with_name(data_dir.name + ".stderr")

    def start(self) -> Self:
        command = [str(SKYLOG), "serve", "--data-dir", str(self.data_dir), "--port", str(self.port)]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        with open(self._stderr_path, "a") as stderr:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith(STARTED), f"skylog serve said {line!r} and {self.stderr()}"
        self.port = int(line.rpartition(":")[2])
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.is_running:
            self.stop()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> float:
        """SIGTERM; the seconds it took. The broker must go cleanly."""
        assert self._process is not None
        began = time.monotonic()
        self._process.terminate()
        assert self._process.wait(60) == 0, self.stderr()
        self._close()
        return time.monotonic() - began

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(60)
        self._close()

    def _close(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.stdout.close()

    def stderr(self) -> str:
        return self._stderr_path.read_text(errors="replace")

    def tracebacks(self, since: int = 0) -> str:
        """What is on stderr around the first traceback after `since` characters; empty where there is none."""
        text = self.stderr()[since:]
        start = text.find("Traceback")
        return "" if start < 0 else text[max(0, start - 300) : start + 5000]

    @property
    def rss_bytes(self) -> int:
        return _status(self.pid, "VmRSS")

    @property
    def peak_rss_bytes(self) -> int:
        return _status(self.pid, "VmHWM")

    def reset_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    @property
    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))


def _status(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no {field} of {pid}")


class BrokerThread:
    """A `Broker` on an event loop of its own in this process, so that a test can look inside."""

    def __init__(
        self, data_dir: Path, settings: Mapping[str, str] | None = None, open_file: OpenFile = LogFile
    ) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker")
        self.broker = Broker(data_dir, ServerConfig.parse(settings or {}), open_file=open_file)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self.port = self.run(self.broker.start("127.0.0.1", 0))
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.broker.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def look(self, question: Callable[[Broker], Any]) -> Any:
        """What `question` finds in the broker, asked on its own thread."""

        async def ask() -> Any:
            return question(self.broker)

        return self.run(ask())
