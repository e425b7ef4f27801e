"""`python -m skylog.storage.clean_process <broker's pid>`: runs one cleaning job, then deletes old segments.

Each job has its own process. So it takes no time from the broker's event loop, and all its memory is freed. The kernel
kills it when the broker dies, because the next broker may clean the same log in the same folder.

It reads the job from stdin, writes the result to stdout, and closes that. Then the broker swaps the new segments in and
sends the names of the files that are left, or closes stdin if there are none. To free the cached pages of a large file
takes long: 10 ms for 64 MB. Everything is pickled; only the broker that started the process uses its pipes.
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
    with open(sys.stdout.fileno(), "wb") as out:  # closes the descriptor, which closing sys.stdout does not
        pickle.dump(clean(job), out)
    try:
        names = pickle.load(sys.stdin.buffer)
    except EOFError:
        return
    for name in names:
        (job.directory / name).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
