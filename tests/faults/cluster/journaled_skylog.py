"""Runs a `skylog` command on a slow disk and notes what is on it: `journaled_skylog.py JOURNAL SYNC_MS serve …`.

Every fsync of a segment takes SYNC_MS longer. A line of the journal is a size and a path. The last line for a path
counts. It is written after the fsync, so that a kill in between makes the journal say too little, never too much.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from pathlib import Path

from skylog.storage.files import LogFile

_synced: dict[Path, int] = {}
_journal = -1
_delay_s = 0.0


def note(path: Path, size_bytes: int) -> None:
    if path.suffix == ".log" and _synced.get(path) != size_bytes:
        _synced[path] = size_bytes
        os.write(_journal, f"{size_bytes} {path}\n".encode())


def sync(file: LogFile) -> None:
    size_bytes = file.size_bytes
    time.sleep(_delay_s)
    os.fdatasync(file.fileno())
    note(file.path, size_bytes)


def truncate(file: LogFile, size_bytes: int) -> None:
    note(file.path, min(_synced.get(file.path, 0), size_bytes))
    os.ftruncate(file.fileno(), size_bytes)
    file.size_bytes = size_bytes


def read_journal(path: Path) -> dict[Path, int]:
    rows = (line.split(" ", 1) for line in path.read_text().splitlines())
    return {Path(name): int(size) for size, name in rows}


if __name__ == "__main__":
    journal = Path(sys.argv.pop(1))
    _delay_s = int(sys.argv.pop(1)) / 1000
    if journal.exists():
        _synced |= read_journal(journal)
    _journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    LogFile.sync = sync  # type: ignore[method-assign, assignment]
    LogFile.truncate = truncate  # type: ignore[method-assign, assignment]
    runpy.run_module("skylog.lifeline", run_name="__main__", alter_sys=True)
