"""A `skylog` command that runs beside a test: how it is started, and its pipes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import IO, Final, Protocol

from skylog.testing.fork_server import ForkServer


class Process(Protocol):
    """What `subprocess.Popen` and `ForkedProcess` have in common."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, number: int, /) -> None: ...
    def terminate(self) -> None: ...


class Command:
    """A running command. It ends when `lifeline` is closed, by its owner's death too."""

    def __init__(self, process: Process, lifeline: int, stdout: int) -> None:
        self._process = process
        self._lifeline: int | None = lifeline
        self.stdout: IO[str] = os.fdopen(stdout)
        self.pid = process.pid
        self.poll = process.poll
        self.wait = process.wait
        self.send_signal = process.send_signal
        self.terminate = process.terminate

    def close_pipes(self) -> None:
        """Also of a process that ended by itself."""
        self.stdout.close()
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None


class _Starter:
    """Starts the first command of this process directly, and further ones, often hundreds, by forking."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._server: ForkServer | None = None

    def start(self, arguments: list[str], stdin: int, stdout: int, stderr: int) -> Process:
        with self._lock:
            is_first, self._owner = self._owner != os.getpid(), os.getpid()  # a process that was forked has no server
            if not is_first and self._server is None:
                self._server = ForkServer()
            server = None if is_first else self._server
        if server is not None:
            return server.start(arguments, stdin, stdout, stderr, follows_stdin=True)
        # A session of its own: Ctrl-C in a debugger is meant for the test, not for the broker.
        command = [sys.executable, "-P", "-m", "skylog.testing.lifeline", *arguments]
        return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True)


_starter: Final = _Starter()


def start_command(arguments: list[str], stderr: int) -> Command:
    """Run `skylog` with these arguments until it ends or this process does."""
    stdin, lifeline = os.pipe()
    output, stdout = os.pipe()
    try:
        process = _starter.start(arguments, stdin, stdout, stderr)
    except BaseException:
        os.close(lifeline)
        os.close(output)
        raise
    finally:
        os.close(stdin)
        os.close(stdout)
    return Command(process, lifeline, output)
