"""Runs a command in a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .conftest import SKYLOG, Skylog

DEADLINE_S = 20.0


class Terminal:
    """The master side of a pseudo-terminal. `seen` is the output so far."""

    def __init__(self, master: int) -> None:
        self._master = master
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, text: str) -> None:
        """Read until `text` has been printed."""
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.seen:
            assert time.monotonic() < deadline, f"{text!r} was not printed, but {self.seen!r}"
            assert self.read(), f"{text!r} was not printed, but {self.seen!r}, and then it ended"

    def read(self) -> bool:
        """Read the available output. Returns False when the program has exited."""
        if select.select([self._master], [], [], 0.2)[0]:
            try:
                data = os.read(self._master, 65536)
            except OSError:  # Linux raises this when the other side is closed
                return False
            self.seen += data.decode()
            return bool(data)
        return True


@contextmanager
def in_terminal(skylog: Skylog, *arguments: str) -> Iterator[tuple[Terminal, subprocess.Popen[bytes]]]:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [SKYLOG, *arguments], env=skylog.environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    )
    os.close(slave)
    try:
        yield Terminal(master), process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(master)
