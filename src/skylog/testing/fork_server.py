"""Starts `skylog` commands, and other modules, by forking a process that has imported everything they need.

Importing takes most of a broker's start. A test suite that starts hundreds of brokers pays for it once:

    server = ForkServer()
    process = server.start(["serve", "--port", "0"], stdin, stdout, stderr)
    process.wait(10)

Each command has its own process, session, environment and standard streams, as if it had been started directly.
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

COMMAND_LINE: Final = "skylog.cli.main"  # a layer above: it is run as a program, as a user runs it, and not imported
_REQUEST_BYTES: Final = 1 << 20
_UNKNOWN_CODE: Final = 255  # of a process whose server was killed


class ForkedProcess:
    """A command that a `ForkServer` has started; with the methods of `subprocess.Popen` that tests need.

    Can be used from several threads: the pipe with the exit code stays open, and readable, as long as this object.
    """

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status  # the server writes the exit code here
        self._reading = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, or None while the process runs."""
        return self._read_status(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._read_status(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return code

    def _read_status(self, timeout: float | None) -> int | None:
        if self.returncode is None and _is_readable(self._status, timeout):
            with self._reading:
                if self.returncode is None:  # no other thread has read it
                    self.returncode = int(os.read(self._status, 16) or str(_UNKNOWN_CODE))
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
        os.close(self._status)


class ForkServer:
    """The server, in a separate process. Can be used from several threads.

    `environment` applies to the imports. Each command gets its own.
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
        module: str = COMMAND_LINE,
        environment: Mapping[str, str] | None = None,
        follows_stdin: bool = False,
    ) -> ForkedProcess:
        """Run `skylog` with these arguments and descriptors. With `follows_stdin` it ends when its standard input does.

        With `module` run that module as a program instead.

        Raises OSError if the server has ended.
        """
        request = {
            "module": module,
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
    """Wait like `select.select`, which does not accept descriptors above 1023."""
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
        poll = select.poll()  # select() cannot wait for descriptors above 1023
        poll.register(self._requests.fileno(), select.POLLIN)
        poll.register(self._wakeup, select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
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
                    _run_command(json.loads(data), streams)
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
                with contextlib.suppress(BrokenPipeError):  # the owner has closed its end
                    os.write(status, b"%d" % os.waitstatus_to_exitcode(wait_status))
                os.close(status)

    def _forget_server(self) -> None:
        """Release the server's resources. Called in the new process."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._requests.close()
        for descriptor in (self._wakeup, self._wakeup_end, *self._statuses.values()):
            os.close(descriptor)


def _run_command(request: Mapping[str, Any], streams: Sequence[int]) -> None:
    """Run the requested command to its end. Called in the new process."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    sys.argv[1:] = request["arguments"]
    if request["follows_stdin"]:
        from skylog.lifeline import follow_owner

        follow_owner()
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


def _import_everything() -> None:
    """Import in advance what commands import when they run."""
    import skylog.audit.stored_tier
    import skylog.broker
    import skylog.client
    import skylog.cluster.shared_store
    import skylog.fastest_loop
    import skylog.testing.store_server  # noqa: F401

    sys.argv[1:] = ["serve", "--help"]  # builds the command line once
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.suppress(SystemExit):
        runpy.run_module(COMMAND_LINE, run_name="__main__", alter_sys=True)
    gc.freeze()  # otherwise garbage collection in each process touches all objects, which copies their pages


if __name__ == "__main__":
    requests = socket.socket(fileno=int(sys.argv[1]))
    _import_everything()
    _Server(requests).run()
