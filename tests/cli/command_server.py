"""Runs `skylog` commands as processes that are forked, not started: what every command imports is imported once.

    commands = Commands(environment)
    done = commands.run(["topics", "list"], environment, stdin=b"")

Each command has a process, an environment and standard streams of its own, and ends as it would alone.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final

TIMEOUT_S: Final = 60
_REQUEST_BYTES: Final = 1 << 20


class Commands:
    """The server, in a process that ends with this one. `environment` is what commands see while they are imported."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(TIMEOUT_S)
        with theirs:
            command = [sys.executable, "-m", "tests.cli.command_server", str(theirs.fileno())]
            self._server = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment
            )

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], stdin: bytes
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        streams = [os.memfd_create(name) for name in ("stdin", "stdout", "stderr")]
        try:
            os.write(streams[0], stdin)
            os.lseek(streams[0], 0, os.SEEK_SET)
            request = json.dumps({"arguments": arguments, "environment": dict(environment)})
            socket.send_fds(self._socket, [request.encode()], streams)
            code = int(self._socket.recv(100) or b"255")
            said = [os.pread(stream, os.fstat(stream).st_size, 0).decode() for stream in streams[1:]]
        finally:
            for stream in streams:
                os.close(stream)
        return subprocess.CompletedProcess(list(arguments), code, *said)


def serve(requests: socket.socket) -> None:
    """Answer with exit codes until nobody asks."""
    from typer.testing import CliRunner

    import skylog.client  # noqa: F401  # which commands import when they need it
    from skylog.cli.main import app, run

    CliRunner().invoke(app, ["topics", "list", "--help"])  # Typer imports much for the first command
    gc.freeze()  # else each child touches, and so copies, all that was imported
    while True:
        request, streams, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 3)
        if not request:
            return
        child = os.fork()
        if not child:
            requests.close()
            _become(json.loads(request), streams)
            run()
            sys.exit()
        for stream in streams:
            os.close(stream)
        _, status = os.waitpid(child, 0)
        requests.send(b"%d" % os.waitstatus_to_exitcode(status))


def _become(request: Mapping[str, Mapping[str, str]], streams: Sequence[int]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[1:] = request["arguments"]


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
