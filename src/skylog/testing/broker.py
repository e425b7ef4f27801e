"""A real broker for tests: `skylog serve` as a process of its own. Knows the command line, not the broker's insides."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from skylog.errors import SkylogError
from skylog.testing.command import Command, start_command

STARTED: Final = "listening on "
_CONSOLE: Final = re.compile(r"^console at (http://\S+)$", re.MULTILINE)
START_PATIENCE_S: Final = 30.0
STOP_PATIENCE_S: Final = 60.0


class BrokerProcessError(SkylogError):
    """A broker that did not start or did not stop as it should; the message has what it said on stderr."""


class BrokerProcess:
    """A broker on 127.0.0.1 that can be stopped, killed and started again on its port and data directory.

        with BrokerProcess(settings={"num.partitions": "4"}) as broker:
            producer = Producer({"bootstrap.servers": broker.bootstrap})

    Without a `data_dir` it has one of its own, which `close`, at the end of the `with` block, removes. Port 0 picks a
    free one, which is then kept. `settings` are a broker's configuration keys; `console` gives it a console on a free
    port, `options` are further ones of the command line. It ends with the process that started it, whatever becomes of
    that. One object serves one thread.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        settings: Mapping[str, str] | None = None,
        port: int = 0,
        *,
        console: bool = False,
        options: Sequence[str] = (),
    ) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="skylog-", ignore_cleanup_errors=True)
        self.data_dir = Path(self._home.name) / "data" if data_dir is None else Path(data_dir)
        self.settings = dict(settings or {})
        self.port = port
        self.options = ["--console-port", "0", *options] if console else ["--no-console", *options]
        self._stderr_path = Path(self._home.name) / "stderr"
        self._last_words = ""
        self._process: Command | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """What clients take as `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    @property
    def console_url(self) -> str:
        """Where its console is; a new port after each start. Raises BrokerProcessError if it has none."""
        found = _CONSOLE.findall(self.stderr())
        if not found:
            raise BrokerProcessError("the broker has no console; give BrokerProcess console=True and start it")
        return str(found[-1])

    @property
    def pid(self) -> int:
        return self._started().pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start, or start again; returns when clients can connect. Raises BrokerProcessError with what it said."""
        if self.is_running:
            raise BrokerProcessError(f"the broker at {self.bootstrap} is running already")
        self._close_pipes()
        arguments = ["serve", "--data-dir", str(self.data_dir), "--port", str(self.port), *self.options]
        for key, value in self.settings.items():
            arguments += ["--set", f"{key}={value}"]
        with open(self._stderr_path, "a") as stderr:
            self._process = start_command(arguments, stderr.fileno())
        line = self._first_line(self._process)
        if line is None or not line.startswith(STARTED):
            self.kill()
            limit = f" in {START_PATIENCE_S} s" if line is None else ""
            said = self.stderr().strip() or repr(line or "")
            raise BrokerProcessError(f"the broker did not start{limit}; it said: {said}")
        self.port = int(line.rpartition(":")[2])
        return self

    def stop(self) -> float:
        """Stop cleanly, as SIGTERM does; the seconds it took."""
        process = self._started()
        began = time.monotonic()
        process.terminate()
        try:
            code = process.wait(STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerProcessError(f"the broker did not stop in {STOP_PATIENCE_S} s: {self.stderr()}") from None
        self._close_pipes()
        if code != 0:
            raise BrokerProcessError(f"the broker ended with code {code}: {self.stderr()}")
        return time.monotonic() - began

    def kill(self) -> None:
        """End it at once, as a crash does: SIGKILL."""
        process = self._started()
        process.send_signal(signal.SIGKILL)
        process.wait()
        self._close_pipes()

    def restart(self) -> Self:
        """Stop, if it runs, and start on the same port and data."""
        if self.is_running:
            self.stop()
        return self.start()

    def close(self) -> None:
        """Stop, if it runs, and remove what was made for it. It cannot be started again."""
        try:
            if self.is_running:
                self.stop()
        finally:
            self._close_pipes()
            self._last_words = self.stderr()
            self._home.cleanup()

    def stderr(self) -> str:
        """What it has logged, over all its starts."""
        try:
            return self._stderr_path.read_text(errors="replace")
        except FileNotFoundError:
            return self._last_words

    def _started(self) -> Command:
        if self._process is None:
            raise BrokerProcessError("the broker has not been started")
        return self._process

    @staticmethod
    def _first_line(process: Command) -> str | None:
        """What it says first on stdout, empty if it ended without a word; None if nothing comes in time."""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            return process.stdout.readline() if selector.select(START_PATIENCE_S) else None

    def _close_pipes(self) -> None:
        """Also of a process that ended by itself, or of none."""
        if self._process is not None:
            self._process.close_pipes()
