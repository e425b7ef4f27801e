"""`python -m skylog.long_slice MODULE ARGUMENT…`: runs a module with long time slices, so that all others go first.

Niceness divides the processors, but does not say who waits for whom. On Linux a thread that wakes up may wait until the
next tick of the clock, up to 4 ms, although the running one has a niceness of 10. It does not wait if its time slice is
shorter. So this process asks for the longest slice there is, from its first import on. It still gets its share if the
others need all processors; with SCHED_IDLE it would not. Linux before 6.12 and other systems have slices of one length.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import struct
import sys
from typing import Final

LONG_SLICE_NS: Final = 100_000_000
_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
"""The number of the system call `sched_setattr`. Only recent C libraries have a function for it."""


def take_long_slices() -> None:
    """Give long time slices to this thread and those that it starts, if the system has them.

    Call this before any other thread is started.
    """
    number = _SCHED_SETATTR.get(os.uname().machine) if sys.platform == "linux" else None
    system_call = getattr(ctypes.CDLL(None), "syscall", None)
    if number is None or system_call is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    # struct sched_attr: size, policy, flags, niceness, real-time priority, slice, deadline, period.
    attributes = struct.pack("=IIQiIQQQ", 48, os.SCHED_OTHER, 0, os.nice(0), 0, LONG_SLICE_NS, 0, 0)
    system_call(number, 0, attributes, 0)  # a sandbox may forbid it; then the slices are as before


if __name__ == "__main__":
    take_long_slices()
    module = sys.argv.pop(1)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
