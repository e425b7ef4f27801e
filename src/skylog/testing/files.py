"""Fault injection for files: a disk that is full, returns errors, writes partially, is slow, or loses unsynced data.

A `DiskFaults` simulates one disk. Pass its `open_file` wherever storage takes an `OpenFile`::

    disk = DiskFaults()
    log_dir = LogDir(path, clock, disk.open_file)
    disk.free_bytes = 100          # ENOSPC after a hundred bytes more
    disk.failing.add("sync")       # EIO from fsync
    disk.lose_unsynced()           # the machine lost power

You can switch faults on and off at any time. They affect open files as well as new ones.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from skylog.storage.files import Buffer, LogFile

Operation = Literal["read", "write", "sync"]


class DiskFaults:
    """The faults of one disk, and the number of calls of each operation (`calls`)."""

    def __init__(self) -> None:
        self.free_bytes: int | None = None
        """Bytes that can still be written; None for no limit."""
        self.failing: set[Operation] = set()
        """Operations that raise EIO."""
        self.longest_write_bytes: int | None = None
        """The most bytes that a single write accepts; None for no limit."""
        self.sync_gate = threading.Event()
        """An fsync waits until this is set. It is set by default."""
        self.sync_gate.set()
        self.suffixes: tuple[str, ...] = (".log",)
        """Faults affect only files with these suffixes."""
        self.calls: Counter[Operation] = Counter()
        self._synced_bytes: dict[Path, int] = {}

    def open_file(self, path: Path, create: bool = False) -> LogFile:
        """Open a file of the log. A broker calls this."""
        return _FaultyFile(path, create, self)

    def strikes(self, operation: Operation, path: Path) -> bool:
        """Whether an operation on a file fails now."""
        return operation in self.failing and path.name.endswith(self.suffixes)

    def note_size(self, path: Path, size_bytes: int) -> None:
        """Treat `size_bytes` of an unknown file as synced: content from before the test is on disk."""
        self._synced_bytes.setdefault(path, size_bytes)

    def note_sync(self, path: Path, size_bytes: int) -> None:
        """Called after a sync: this much of the file is on the disk."""
        self._synced_bytes[path] = size_bytes

    def lose_unsynced(self) -> None:
        """Truncate every file opened here to its size at the last fsync, as a power failure may."""
        for path, size_bytes in self._synced_bytes.items():
            if path.exists() and path.stat().st_size > size_bytes:
                os.truncate(path, size_bytes)


class _FaultyFile(LogFile):
    __slots__ = ("_disk",)

    def __init__(self, path: Path, create: bool, disk: DiskFaults) -> None:
        super().__init__(path, create)
        self._disk = disk
        disk.note_size(path, self.size_bytes)

    def write_at(self, data: Buffer, position: int) -> int:
        disk = self._disk
        disk.calls["write"] += 1
        if disk.strikes("write", self.path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(self.path))
        length = len(data) if disk.longest_write_bytes is None else min(len(data), disk.longest_write_bytes)
        if disk.free_bytes is not None and self.path.name.endswith(disk.suffixes):
            length = min(length, disk.free_bytes)
            if not length:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            disk.free_bytes -= length
        return super().write_at(memoryview(data)[:length], position)

    def write_all_at(self, parts: Sequence[Buffer], position: int) -> int:
        return self.write_at(b"".join(parts), position)

    def read(self, position: int, length: int) -> bytes:
        self._disk.calls["read"] += 1
        if self._disk.strikes("read", self.path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(self.path))
        return super().read(position, length)

    def sync(self) -> None:
        disk, size_bytes = self._disk, self.size_bytes
        disk.calls["sync"] += 1
        disk.sync_gate.wait()
        if disk.strikes("sync", self.path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(self.path))
        super().sync()
        disk.note_sync(self.path, size_bytes)
