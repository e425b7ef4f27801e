"""`python -m skylog.low_priority MODULE ARGUMENT…`: runs a module with a low priority from its first import on.

A niceness alone is not enough: it divides the processors, but does not say who waits for whom. On Linux a thread that
wakes up may wait until the next tick of the clock, up to 4 ms, although the running one has a niceness of 10. It does
not wait if its time slice is shorter. So this process asks for the longest slice there is, and all others go first. It
still gets its share if they need all processors; with SCHED_IDLE it would not. Linux before 6.12 and other systems know
the niceness only.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import struct
import sys
from typing import Final

NICENESS: Final = 10
LONG_SLICE_NS: Final = 100_000_000
_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
"""The number of the system call `sched_setattr`. Only recent C libraries have a function for it."""


def lower_priority() -> None:
    """Lower the priority of this thread, and of those that it starts. Call this before any other thread is started."""
    niceness = os.nice(NICENESS)
    number = _SCHED_SETATTR.get(os.uname().machine) if sys.platform == "linux" else None
    system_call = getattr(ctypes.CDLL(None), "syscall", None)
    if number is None or system_call is None:
        return
    # struct sched_attr: size, policy, flags, niceness, real-time priority, slice, deadline, period.
    attributes = struct.pack("=IIQiIQQQ", 48, os.SCHED_OTHER, 0, niceness, 0, LONG_SLICE_NS, 0, 0)
    system_call(number, 0, attributes, 0)  # a sandbox may forbid it, which leaves the niceness


if __name__ == "__main__":
    lower_priority()
    module = sys.argv.pop(1)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
