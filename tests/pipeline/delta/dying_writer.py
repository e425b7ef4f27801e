"""Dies at each step of a commit, one after the other: `python -m tests.pipeline.delta.dying_writer PATH`.

A child process appends an increment and is killed at its first step, the next one at the second, until one gets
through. A step is a call that the tables' own code makes. After each death the table must have the rows that its
offsets say.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from itertools import count
from types import FrameType
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql.types import LongType, StructType

from skylog.model import TopicPartition
from skylog.pipeline.delta import data_files
from skylog.pipeline.delta.data_files import FileLayout, write_batches
from skylog.pipeline.delta.storage import Storage
from skylog.pipeline.delta.table_log import TableLog
from tests.proof import proof

KEY = TopicPartition("views", 0)
SCHEMA = StructType().add("id", LongType())
STRIDE = proof(1, 61)  # prime, so that the steps of a loop have their turns
OWN_CODE = os.path.dirname(data_files.__file__)


def work(path: str) -> None:
    storage = Storage.of(path)
    log = TableLog.open_or_create(storage, SCHEMA)
    done = log.offsets(["views"]).get(KEY, 0)
    batch = pa.record_batch({"id": pa.array(range(done, done + 10), pa.int64())})
    files = write_batches([batch], storage, FileLayout(max_rows=4))
    log.commit(files, before={KEY: done} if done else {}, after={KEY: done + 10})


def die_at(step: int) -> None:
    steps = count(1)

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        caller = frame.f_back if event == "call" else frame if event == "c_call" else None
        is_step = caller is not None and caller.f_code.co_filename.startswith(OWN_CODE)
        if is_step and next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(watch)


def child_got_through(path: str, step: int) -> bool:
    child = os.fork()
    if child == 0:
        die_at(step)
        work(path)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL, f"step {step}: status {status}"
    return status == 0


def check(path: str) -> None:
    """In a child, because delta-rs starts threads, which a later fork would not have."""
    child = os.fork()
    if child == 0:
        log = TableLog.open(Storage.of(path))
        end = 0 if log is None else log.offsets(["views"]).get(KEY, 0)
        rows = [] if log is None else DeltaTable(path).to_pyarrow_table()["id"].to_pylist()
        os._exit(0 if sorted(rows) == list(range(end)) else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0, "rows and offsets disagree"


def main(path: str) -> None:
    for deaths, step in enumerate(count(1, STRIDE)):
        is_through = child_got_through(path, step)
        check(path)
        if is_through:
            print(json.dumps({"deaths": deaths}))
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
