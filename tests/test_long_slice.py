"""Modules that let all other processes go first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from skylog.long_slice import LONG_SLICE_NS

SHOW = """
import ctypes, os, sys
attributes = ctypes.create_string_buffer(48)
assert ctypes.CDLL(None).syscall({number}, 0, attributes, 48, 0) == 0
print(__name__, sys.argv[1:], os.nice(0), int.from_bytes(attributes[24:32], sys.byteorder))
"""
SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}


def test_a_module_runs_with_a_long_time_slice_and_the_same_niceness(tmp_path: Path) -> None:
    (tmp_path / "show.py").write_text(SHOW.format(number=SCHED_GETATTR[os.uname().machine]))
    command = [sys.executable, "-m", "skylog.long_slice", "show", "a", "b"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    release = tuple(int(part) for part in os.uname().release.split(".")[:2])
    slice_ns = LONG_SLICE_NS if release >= (6, 12) else 0
    assert out == f"__main__ ['a', 'b'] {os.nice(0)} {slice_ns}\n"
