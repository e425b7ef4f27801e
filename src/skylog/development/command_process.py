"""A `skylog` command as a child process. The kernel kills it when this process dies, even by SIGKILL."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from skylog.bound_process import BoundProcess
from skylog.errors import SkylogError

STARTED: Final = "listening on "
_START_TIMEOUT_S: Final = 120.0
_STOP_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.02


class CommandProcess:
    """A command that can be started again after its end. Its output is appended to a file.

    It inherits some descriptors. Starting and stopping may happen in two threads: a command that is stopped makes
    `_wait_for_address` fail.
    """

    def __init__(self, log_path: Path, inherited: Sequence[int] = ()) -> None:
        self.log_path = log_path
        self._inherited = inherited
        self._process: BoundProcess | None = None
        self._log_start = 0

    def _launch(self, arguments: Sequence[str]) -> None:
        """Start `skylog` with these arguments."""
        command = [sys.executable, "-P", "-m", "skylog", *arguments]
        with open(self.log_path, "ab") as output:
            self._log_start = output.tell()
            self._process = BoundProcess(command, directory=".", output=output, inherited=self._inherited)

    def _wait_for_address(self) -> str:
        """Return the address from the line `listening on HOST:PORT`. Raises SkylogError if the command ends before."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            has_ended = self._started().wait(_POLL_S)
            for line in self.output().splitlines(keepends=True):
                if line.startswith(STARTED) and line.endswith("\n"):
                    return line.removeprefix(STARTED).rstrip()
            if has_ended:
                raise SkylogError(self.last_words())
        self.kill()
        raise SkylogError(f"no answer within {_START_TIMEOUT_S:.0f} s")

    def output(self) -> str:
        """Return everything that it has written since its last start."""
        with open(self.log_path, "rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def last_words(self) -> str:
        """Return its error, which is the last line that it wrote."""
        return self.output().strip().rpartition("\n")[2].removeprefix("error: ") or "it ended without a word"

    @property
    def pid(self) -> int:
        return self._started().pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._started().exit_code

    def wait(self) -> None:
        """Wait until it has ended."""
        self._started().wait()

    def stop(self) -> None:
        """Stop it cleanly, if it runs."""
        if self.is_running:
            self._started().stop(_STOP_TIMEOUT_S)

    def kill(self) -> None:
        """Kill it like a crash: SIGKILL."""
        self._started().kill()

    def _started(self) -> BoundProcess:
        if self._process is None:
            raise SkylogError("the command has not been started")
        return self._process
