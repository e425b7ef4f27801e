"""Runs a command that does not outlive the process that started it: it stops when its standard input is closed.

`python -m skylog.lifeline serve …` is `skylog serve …` with a pipe from its parent as standard input. The kernel closes
the pipe however the parent ends, even by SIGKILL, so no broker is left behind. Linux can also send a signal when the
parent dies (PR_SET_PDEATHSIG), but that signal already comes when the thread that started the broker ends.
"""

from __future__ import annotations

import os
import runpy
import signal
import threading
import time
from typing import Final

STOP_TIMEOUT_S: Final = 10.0


def follow_owner() -> None:
    """Stop this process when its standard input is closed: cleanly, or by force after `STOP_TIMEOUT_S`."""
    threading.Thread(target=_wait_for_owner, name="lifeline", daemon=True).start()


def _wait_for_owner() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_TIMEOUT_S)
    os._exit(1)


if __name__ == "__main__":
    follow_owner()
    # The command line is a layer above, so it is run as a program instead of imported.
    runpy.run_module("skylog.cli.main", run_name="__main__", alter_sys=True)
