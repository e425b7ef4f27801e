"""Starts a program that the kernel kills when this process dies, even by SIGKILL.

Linux sends the signal of PR_SET_PDEATHSIG when the thread that started the program ends. So a `BoundProcess` has a
thread of its own, which starts the program and then waits for its end.

The program is started by running this file as a script: it sets the signal and replaces itself with the program.
It must therefore import nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import IO, Final

_PR_SET_PDEATHSIG: Final = 1
_WATCH_S: Final = 0.1


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent dies. Exit if it is already dead."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:  # macOS; ends with an `exec`, so a program that is started by this file as a script can outlive its parent
        threading.Thread(target=_watch, args=(parent,), name="parent-watch", daemon=True).start()
    if os.getppid() != parent:
        sys.exit("the parent process has died")


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_WATCH_S)
    os._exit(1)


class BoundProcess:
    """A program in its own session, so that Ctrl-C does not reach it. Can be used from any thread.

    It inherits the descriptors `inherited`.
    """

    def __init__(
        self, command: Sequence[str], *, directory: str, output: IO[bytes], inherited: Sequence[int] = ()
    ) -> None:
        self._command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]
        self._directory, self._output, self._inherited = directory, output, inherited
        self._process: subprocess.Popen[bytes] | None = None
        self._error: OSError | None = None
        self._has_started, self._has_ended = threading.Event(), threading.Event()
        threading.Thread(target=self._own, name="bound-process", daemon=True).start()
        self._has_started.wait()
        if self._error is not None:
            raise self._error

    def _own(self) -> None:
        try:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                pass_fds=self._inherited,
                start_new_session=True,
            )
        except OSError as error:
            self._error = error
        self._has_started.set()
        if self._process is not None:
            self._process.wait()
        self._has_ended.set()

    @property
    def pid(self) -> int:
        return self._started().pid

    @property
    def is_running(self) -> bool:
        return not self._has_ended.is_set()

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._started().returncode

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for its end. Return False after a timeout."""
        return self._has_ended.wait(timeout_s)

    def stop(self, timeout_s: float) -> None:
        """Stop it with SIGTERM, or with SIGKILL after the timeout."""
        self._started().terminate()
        if not self.wait(timeout_s):
            self.kill()

    def kill(self) -> None:
        self._started().kill()
        self.wait()

    def _started(self) -> subprocess.Popen[bytes]:
        assert self._process is not None  # otherwise the constructor has raised
        return self._process


if __name__ == "__main__":
    die_with(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
