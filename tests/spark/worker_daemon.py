"""Spark's daemon of Python workers, with its imports done in advance: `worker_daemon.py -m pyspark.daemon MODULE`.

Spark's own daemon imports nothing, and each worker that it forks imports Arrow and pandas: more than half a second of
every first task. They could start threads, which a fork does not have: `worker_python` leaves none but that of Arrow's
allocator, which expects forks.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import runpy
import sys

IN_TASKS = ("pandas", "pyarrow", "skylog.spark.reading.range_reader", "skylog.spark.writing.writer")


def import_for(worker: str) -> None:
    """Import what tasks use. Other workers, which plan and commit, are few and live long."""
    if worker != "pyspark.worker":
        return
    for name in (worker, *IN_TASKS):
        with contextlib.suppress(ImportError):  # the worker will find out, and say so
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # otherwise garbage collection in each worker copies the pages of all objects


if __name__ == "__main__":
    sys.argv[:] = sys.argv[2:]
    sys.path[0] = os.getcwd()  # as -m does
    import_for(sys.argv[1])
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
