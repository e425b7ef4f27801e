"""A real broker for tests: `skylog serve` as a process. Uses the command line, not the broker's internals."""

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
    """A broker that did not start or stop cleanly. The message includes its stderr."""


class BrokerProcess:
    """A broker on 127.0.0.1 that can be stopped, killed and started again on its port and data directory.

        with BrokerProcess(settings={"num.partitions": "4"}) as broker:
            producer = Producer({"bootstrap.servers": broker.bootstrap})

    Without a `data_dir` it uses a temporary one, which `close` removes at the end of the `with` block. Port 0 picks a
    free port, which is then kept. `settings` are broker configuration keys, `console` starts a console on a free port,
    `options` are further command line options. The broker ends with the process that started it, even if that is
    killed. Use one object per thread.
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
        """The address for a client's `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    @property
    def console_url(self) -> str:
        """The URL of its console, with a new port after each start. Raises BrokerProcessError if it has none."""
        found = _CONSOLE.findall(self.stderr())
        if not found:
            raise BrokerProcessError("the broker has no console; pass console=True to BrokerProcess and start it")
        return str(found[-1])

    @property
    def pid(self) -> int:
        """The process id. Raises BrokerProcessError if the broker does not run."""
        return self._started().pid

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start or restart the broker; returns when clients can connect. Raises BrokerProcessError with its stderr."""
        if self.is_running:
            raise BrokerProcessError(f"the broker at {self.bootstrap} is running already")
        self._close_pipes()
        arguments = ["serve", "--data-dir", str(self.data_dir), "--port", str(self.port), *self.options]
        for key, value in self.settings.items():
            arguments += ["--set", f"{key}={value}"]
        with open(self._stderr_path, "a") as stderr:
            self._process = self._launch(arguments, stderr.fileno())
        line = self._first_line(self._process)
        if line is None or not line.startswith(STARTED):
            self.kill()
            limit = f" in {START_PATIENCE_S} s" if line is None else ""
            output = self.stderr().strip() or repr(line or "")
            raise BrokerProcessError(f"the broker did not start{limit}: {output}")
        self.port = int(line.rpartition(":")[2])
        return self

    def _launch(self, arguments: list[str], stderr: int) -> Command:
        """Run `skylog` with these arguments."""
        return start_command(arguments, stderr)

    def stop(self) -> float:
        """Stop cleanly, with SIGTERM; return the seconds it took. A paused broker is resumed."""
        process = self._started()
        began = time.monotonic()
        process.terminate()
        process.send_signal(signal.SIGCONT)
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
        """Kill the process, like a crash: SIGKILL."""
        process = self._started()
        process.send_signal(signal.SIGKILL)
        process.wait()
        self._close_pipes()

    def pause(self) -> None:
        """Stop the process from running, like a long garbage collection or a frozen machine: SIGSTOP."""
        self._started().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process run again: SIGCONT."""
        self._started().send_signal(signal.SIGCONT)

    def restart(self) -> Self:
        """Stop the broker if it is running, and start it with the same port and data."""
        if self.is_running:
            self.stop()
        return self.start()

    def close(self) -> None:
        """Stop the broker if it is running, and delete its temporary files. It cannot be started again."""
        try:
            if self.is_running:
                self.stop()
        finally:
            self._close_pipes()
            self._last_words = self.stderr()
            self._home.cleanup()

    def stderr(self) -> str:
        """Return its log, over all starts."""
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
        """Return the first line on stdout, empty if the process ended without one; None after a timeout."""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            return process.stdout.readline() if selector.select(START_PATIENCE_S) else None

    def _close_pipes(self) -> None:
        """Close the pipes, also of a process that ended by itself."""
        if self._process is not None:
            self._process.close_pipes()
