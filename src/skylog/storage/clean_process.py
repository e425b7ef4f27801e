"""`python -m skylog.storage.clean_process`: one cleaning job, from standard input to standard output.

A process of its own for each job: it takes no time from the broker's event loop, gives all its memory back, and ends by
itself should the broker die first. Job and result are pickled; nobody but the broker that started it talks to it.
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import Final

from skylog.storage.cleaner import clean

_NICENESS: Final = 10


def main() -> None:
    os.nice(_NICENESS)
    job = pickle.load(sys.stdin.buffer)
    pickle.dump(clean(job), sys.stdout.buffer)


if __name__ == "__main__":
    main()
