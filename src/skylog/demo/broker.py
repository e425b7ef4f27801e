"""The demo's broker: `skylog serve` in a child process that ends together with this one."""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from skylog.errors import SkylogError

_STARTED: Final = "listening on "
_CONSOLE: Final = re.compile(r"^console at (http://\S+)$", re.MULTILINE)
_START_TIMEOUT_S: Final = 30.0
_STOP_TIMEOUT_S: Final = 60.0


class DemoBroker:
    """A broker on 127.0.0.1 with a console on a free port. Use it from one thread.

    Its standard input is a pipe from this process: the broker stops when the pipe is closed, however this process ends
    (see `skylog.lifeline`). It runs in a separate session, so Ctrl-C reaches only the demo.
    """

    def __init__(self, data_dir: Path, port: int, config_file: Path | None = None) -> None:
        """`config_file` has settings of the broker, also secrets."""
        self._config_file = config_file
        self.port = port
        self._data_dir = data_dir
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # as long as this object
        self._process: subprocess.Popen[str] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def console_url(self) -> str:
        found = _CONSOLE.findall(self.log())
        if not found:
            raise SkylogError("the broker has no console")
        return str(found[-1])

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Return when clients can connect. Raises SkylogError with the broker's error if it does not start."""
        command = [sys.executable, "-P", "-m", "skylog.lifeline", "serve", "--data-dir", str(self._data_dir)]
        command += ["--port", str(self.port), "--console-port", "0"]
        if self._config_file is not None:
            command += ["--config", str(self._config_file)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            start_new_session=True,
        )
        line = self._first_line(self._process)
        if not line.startswith(_STARTED):
            self.kill()
            reason = self.log().strip().rpartition("\n")[2].removeprefix("error: ")
            if "cannot listen" in reason:
                reason = f"port {self.port} is in use; stop the other process or use --port 0 to pick a free port"
            raise SkylogError(f"the broker did not start: {reason}")
        self.port = int(line.rpartition(":")[2])

    def check(self) -> None:
        """Raise SkylogError if it has ended."""
        if not self.is_running:
            raise SkylogError(f"the broker exited; the end of its log: {self.log().strip()[-500:]}")

    def close(self) -> None:
        """Stop cleanly, if it runs. Raises SkylogError if that fails or takes too long."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            code = self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise SkylogError(f"the broker did not stop within {_STOP_TIMEOUT_S:.0f} s") from None
        if code:
            raise SkylogError(f"the broker exited with code {code}; the end of its log: {self.log().strip()[-500:]}")

    def kill(self) -> None:
        """Stop it immediately with SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def log(self) -> str:
        """Return everything that the broker has logged."""
        descriptor = self._stderr.fileno()
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")

    @staticmethod
    def _first_line(process: subprocess.Popen[str]) -> str:
        """Return the first line on stdout. It is empty if the broker exits or the time limit passes before it."""
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            return process.stdout.readline() if selector.select(_START_TIMEOUT_S) else ""
