"""A command line that does not outlive its owner: it ends when its standard input does.

`python -m skylog.testing.lifeline serve …` is `skylog serve …` with a pipe for a lifeline. The kernel closes the other
end however the owner ends, by SIGKILL too, so no broker is left behind. A signal at the parent's death, which Linux
offers as well (PR_SET_PDEATHSIG), would come when the thread ends that started the broker.
"""

from __future__ import annotations

import os
import runpy
import signal
import threading
import time
from typing import Final

PATIENCE_S: Final = 10.0


def follow_owner() -> None:
    """End this process when its standard input ends: cleanly, or after a while at once."""
    threading.Thread(target=_wait_for_owner, name="lifeline", daemon=True).start()


def _wait_for_owner() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE_S)
    os._exit(1)


if __name__ == "__main__":
    follow_owner()
    # The command line is a layer above: it is run as a program, as a user runs it, and not imported.
    runpy.run_module("skylog.cli.main", run_name="__main__", alter_sys=True)
