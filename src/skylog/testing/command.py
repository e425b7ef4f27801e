"""A `skylog` command that runs beside a test: how it is started, and its pipes."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO, Final, Protocol

from skylog.testing.fork_server import COMMAND_LINE, ForkServer

logger = logging.getLogger(__name__)


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
    """Starts the first program of this process directly, and further ones, often hundreds, by forking."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._server: ForkServer | None = None

    def start(self, module: str, arguments: list[str], stdin: int, stdout: int, stderr: int) -> Process:
        is_command = module == COMMAND_LINE
        server = self._find_server()
        if server is not None:
            try:
                return server.start(arguments, stdin, stdout, stderr, module=module, follows_stdin=is_command)
            except OSError as error:
                logger.warning("starting a process without the fork server: %s", error)
                self._server = None
        # A separate session, so that Ctrl-C in a debugger interrupts the test and not the broker.
        command = [sys.executable, "-P", "-m", "skylog.lifeline" if is_command else module, *arguments]
        return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True)

    def _find_server(self) -> ForkServer | None:
        """Return None for the first program of this process. A forked process must not use its parent's server."""
        with self._lock:
            if self._owner != os.getpid():
                self._owner, self._server = os.getpid(), None
                return None
            if self._server is None:
                self._server = ForkServer()
            return self._server


_starter: Final = _Starter()


def start_command(arguments: list[str], stderr: int) -> Command:
    """Run `skylog` with these arguments until it ends or this process does."""
    return connect_command(lambda stdin, stdout: _starter.start(COMMAND_LINE, arguments, stdin, stdout, stderr))


def start_program(module: str, arguments: list[str], stdin: int, stdout: int, stderr: int) -> Process:
    """Run a module with these arguments and descriptors. It has to end by itself when this process does."""
    return _starter.start(module, arguments, stdin, stdout, stderr)


def connect_command(start: Callable[[int, int], Process]) -> Command:
    """Call `start` with descriptors for the standard input and output of the process that it starts."""
    stdin, lifeline = os.pipe()
    output, stdout = os.pipe()
    try:
        process = start(stdin, stdout)
    except BaseException:
        os.close(lifeline)
        os.close(output)
        raise
    finally:
        os.close(stdin)
        os.close(stdout)
    return Command(process, lifeline, output)
