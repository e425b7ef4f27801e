"""A command line that does not outlive whoever started it: it ends when its standard input does.

`python -m skylog.testing.lifeline serve …` is `skylog serve …` with a pipe for a lifeline. The kernel closes the other
end however the owner goes, by SIGKILL too, so no broker is left behind. A signal at the parent's death, which Linux
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


def _follow_owner() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE_S)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_follow_owner, name="lifeline", daemon=True).start()
    # The command line is a layer above: it is run as a program, as a user runs it, and not imported.
    runpy.run_module("skylog.cli.main", run_name="__main__", alter_sys=True)
