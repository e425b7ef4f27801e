"""`python -m skylog.storage.clean_process <broker's pid>`: runs one cleaning job from stdin and prints its result.

Each job has its own process. So it takes no time from the broker's event loop, and all its memory is freed. The kernel
kills it when the broker dies, because the next broker may clean the same log in the same folder. Job and result are
pickled; only the broker that started the process uses its pipes.
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import Final

from skylog.bound_process import die_with
from skylog.storage.cleaner import clean

_NICENESS: Final = 10


def main() -> None:
    die_with(int(sys.argv[1]))
    os.nice(_NICENESS)
    job = pickle.load(sys.stdin.buffer)
    pickle.dump(clean(job), sys.stdout.buffer)


if __name__ == "__main__":
    main()
