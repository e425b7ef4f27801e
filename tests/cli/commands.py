"""Runs `skylog` commands in forked processes, so that their imports happen only once."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

from skylog.testing.fork_server import ForkServer

TIMEOUT_S: Final = 60


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
