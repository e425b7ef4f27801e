"""Runs `skylog` commands in forked processes, so that their imports happen only once."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from skylog.testing.fork_server import ForkServer

TERMINAL: Final = {"COLUMNS": "200", "TERM": "xterm-256color"}
TIMEOUT_S: Final = 240


class Commands:
    """Runs commands one after another. They are imported with `environment`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._server = ForkServer(environment)

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], stdin: bytes
    ) -> subprocess.CompletedProcess[str]:
        streams = [os.memfd_create(name) for name in ("stdin", "stdout", "stderr")]
        try:
            os.write(streams[0], stdin)
            os.lseek(streams[0], 0, os.SEEK_SET)
            code = self._server.start(arguments, *streams, environment=environment).wait(TIMEOUT_S)
            outputs = [os.pread(stream, os.fstat(stream).st_size, 0).decode() for stream in streams[1:]]
        finally:
            for stream in streams:
                os.close(stream)
        return subprocess.CompletedProcess(list(arguments), code, *outputs)


@cache
def _commands() -> Commands:
    return Commands({**os.environ, **TERMINAL})


def run_skylog(
    *arguments: object, stdin: bytes = b"", variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, in a wide terminal, with these variables besides those of this process."""
    return _commands().run([*map(str, arguments)], {**os.environ, **TERMINAL, **(variables or {})}, stdin)
