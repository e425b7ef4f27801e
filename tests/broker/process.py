"""Brokers to test against: `skylog serve` as a process of its own, or a `Broker` on a thread of this process."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

import uvloop

from skylog import testing
from skylog.broker import Broker, ServerConfig, standalone_broker
from skylog.storage.files import LogFile, OpenFile

T = TypeVar("T")

SKYLOG = Path(sys.executable).with_name("skylog")
until = testing.wait_until


class BrokerProcess(testing.BrokerProcess):
    """A `skylog serve` process, with access to its memory usage and stderr."""

    def tracebacks(self, since: int = 0) -> str:
        """Return stderr around the first traceback after `since` characters, empty if there is none."""
        text = self.stderr()[since:]
        start = text.find("Traceback")
        return "" if start < 0 else text[max(0, start - 300) : start + 5000]

    def forget_stderr(self) -> None:
        os.truncate(self._stderr_path, 0)

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
        self.broker = standalone_broker(data_dir, ServerConfig.parse(settings or {}), open_file=open_file)
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

    def look(self, question: Callable[[Broker], T]) -> T:
        """Call `question` with the broker on its own thread. Return the result."""

        async def ask() -> T:
            return question(self.broker)

        found: T = self.run(ask())
        return found
