"""Dies at each step of a store's work, one after the other: `python -m tests.pipeline.databases.doomed URL TABLE`.

A child process adds counts and is killed at its first step, the next one at the second, until one gets through. A step
is a call that the store's own code makes. After each death the table must have the counts as often as
its offsets say.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import date
from itertools import count
from types import FrameType
from typing import Any

from skylog.model import TopicPartition
from skylog.pipeline.databases.store import open_store
from skylog.pipeline.jobs.visits import LAYOUT
from tests.pipeline.databases.servers import contents

PARTITIONS = [TopicPartition("page_views", 0), TopicPartition("page_views", 1)]
COUNTS = [
    ("acme", date(2024, 5, 1), 3),
    ("acme", date(2024, 5, 2), 1),
    ("apex", date(2024, 5, 1), 2),
]
OWN_CODE = os.path.dirname(open_store.__code__.co_filename)


def work(url: str, table: str) -> None:
    store = open_store(url, table)
    before = store.offsets()
    store.apply(LAYOUT, COUNTS, before, {key: before.get(key, 0) + 10 for key in PARTITIONS})
    store.close()


def die_at(step: int) -> None:
    steps = count(1)

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        caller = frame.f_back if event == "call" else frame if event == "c_call" else None
        is_step = caller is not None and caller.f_code.co_filename.startswith(OWN_CODE)
        if is_step and next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(watch)


def child_got_through(url: str, table: str, step: int) -> bool:
    child = os.fork()
    if child == 0:
        die_at(step)
        work(url, table)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL, f"step {step}: status {status}"
    return status == 0


def check(url: str, table: str) -> int:
    """How often the counts are in the table."""
    store = open_store(url, table)
    offsets = store.offsets()
    store.close()
    times = offsets.get(PARTITIONS[0], 0) // 10
    assert offsets == (dict.fromkeys(PARTITIONS, 10 * times) if times else {})
    expected = {(name, day.isoformat()): visits * times for name, day, visits in COUNTS} if times else {}
    assert contents(url, table) == expected
    return times


def main(url: str, table: str) -> None:
    for step in count(1):
        is_through = child_got_through(url, table, step)
        times = check(url, table)
        if is_through:
            print(f"{step - 1} deaths, {times} times")
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
