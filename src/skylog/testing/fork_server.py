"""Starts `skylog` commands by forking a process that has imported everything they need.

Importing takes most of a broker's start. A test suite that starts hundreds of brokers pays for it once:

    server = ForkServer()
    process = server.start(["serve", "--port", "0"], stdin, stdout, stderr)
    process.wait(10)

Each command has a process, a session, an environment and standard streams of its own, as if it had been started alone.
The server is single-threaded, so forking it is safe. It ends when its owner does.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

_COMMAND_LINE: Final = "skylog.cli.main"  # a layer above: it is run as a program, as a user runs it, and not imported
_REQUEST_BYTES: Final = 1 << 20
_UNKNOWN_CODE: Final = 255  # of a process whose server was killed


class ForkedProcess:
    """A command that a `ForkServer` has started; with the methods of `subprocess.Popen` that tests need."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status  # the server writes the exit code here

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        return self._read_status(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._read_status(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return code

    def _read_status(self, timeout: float | None) -> int | None:
        if self.returncode is None and _is_readable(self._status, timeout):
            self.returncode = int(os.read(self._status, 16) or str(_UNKNOWN_CODE))
            os.close(self._status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() in (None, _UNKNOWN_CODE):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __del__(self) -> None:
        if self.returncode is None:
            os.close(self._status)


class ForkServer:
    """The server, in a process of its own. May be used from several threads.

    `environment` is that of the imports; each command gets its own.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=environment,
            )

    def start(
        self,
        arguments: Sequence[str],
        stdin: int,
        stdout: int,
        stderr: int,
        *,
        environment: Mapping[str, str] | None = None,
        follows_stdin: bool = False,
    ) -> ForkedProcess:
        """Run `skylog` with these arguments and descriptors. With `follows_stdin` it ends when its standard input does.

        Raises OSError if the server is gone.
        """
        request = {
            "arguments": list(arguments),
            "environment": dict(os.environ if environment is None else environment),
            "directory": os.getcwd(),
            "follows_stdin": follows_stdin,
        }
        status, theirs = os.pipe()
        try:
            with self._lock:
                socket.send_fds(self._socket, [json.dumps(request).encode()], [stdin, stdout, stderr, theirs])
                answer = self._socket.recv(16)
            if not answer:
                raise OSError("the process that starts brokers has ended")
        except BaseException:
            os.close(status)
            raise
        finally:
            os.close(theirs)
        return ForkedProcess(int(answer), status)


def _is_readable(descriptor: int, timeout: float | None) -> bool:
    """Like `select.select`, which takes no descriptor above 1023."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if timeout is None else timeout * 1000))


class _Server:
    """The loop of the server's process: requests in, processes out, exit codes when they end."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._statuses: dict[int, int] = {}  # where the exit code of each process goes
        self._wakeup, wakeup = os.pipe()
        os.set_blocking(self._wakeup, False)
        os.set_blocking(wakeup, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup)
        self._wakeup_end = wakeup

    def run(self) -> None:
        while True:
            ready, _, _ = select.select([self._requests.fileno(), self._wakeup], [], [])
            if self._wakeup in ready:
                self._reap()
            if self._requests.fileno() in ready:
                data, descriptors, _, _ = socket.recv_fds(self._requests, _REQUEST_BYTES, 4)
                if not data:
                    return
                *streams, status = descriptors
                pid = os.fork()
                if not pid:
                    os.close(status)
                    self._forget_server()
                    _become(json.loads(data), streams)
                    return
                for stream in streams:
                    os.close(stream)
                self._statuses[pid] = status
                self._requests.send(b"%d" % pid)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakeup, 4096)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, wait_status = ended
                status = self._statuses.pop(pid)
                with contextlib.suppress(BrokenPipeError):  # nobody wants to know
                    os.write(status, b"%d" % os.waitstatus_to_exitcode(wait_status))
                os.close(status)

    def _forget_server(self) -> None:
        """In the new process: let go of everything that is the server's."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._requests.close()
        for descriptor in (self._wakeup, self._wakeup_end, *self._statuses.values()):
            os.close(descriptor)


def _become(request: Mapping[str, Any], streams: Sequence[int]) -> None:
    """Be the command that was asked for, to its end."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    sys.argv[1:] = request["arguments"]
    if request["follows_stdin"]:
        from skylog.testing.lifeline import follow_owner

        follow_owner()
    runpy.run_module(_COMMAND_LINE, run_name="__main__", alter_sys=True)


def _import_everything() -> None:
    """What commands import when they are run, in advance."""
    import uvloop  # noqa: F401

    import skylog.audit.stored_tier
    import skylog.broker
    import skylog.client  # noqa: F401

    sys.argv[1:] = ["serve", "--help"]  # builds the command line once
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.suppress(SystemExit):
        runpy.run_module(_COMMAND_LINE, run_name="__main__", alter_sys=True)
    gc.freeze()  # else each process touches, and so copies, all of it


if __name__ == "__main__":
    asking = socket.socket(fileno=int(sys.argv[1]))
    _import_everything()
    _Server(asking).run()
