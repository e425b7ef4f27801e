"""`python -m skylog.storage.clean_process <broker's pid>`: one cleaning job, from standard input to standard output.

A process of its own for each job: it takes no time from the broker's event loop, gives all its memory back, and is
killed should the broker die first: the next broker may clean the same log in the same folder. Job and result are
pickled; nobody but the broker that started it talks to it.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
from typing import Final

from skylog.storage.cleaner import clean

_NICENESS: Final = 10
_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    die_with(int(sys.argv[1]))
    os.nice(_NICENESS)
    job = pickle.load(sys.stdin.buffer)
    pickle.dump(clean(job), sys.stdout.buffer)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies; it may have died before."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the broker has died")


if __name__ == "__main__":
    main()
