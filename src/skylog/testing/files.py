"""Files that fail: a disk that fills up, gives errors, writes half, is slow, or forgets what was not synced.

A `DiskFaults` stands for one disk. Its `open_file` goes wherever storage takes an `OpenFile`::

    disk = DiskFaults()
    log_dir = LogDir(path, clock, disk.open_file)
    disk.free_bytes = 100          # ENOSPC after a hundred bytes more
    disk.failing.add("sync")       # EIO from fsync
    disk.lose_unsynced()           # the machine lost power

Faults are switched on and off at any time, and strike the files that are open as well as those to come.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Literal

from skylog.storage.files import Buffer, LogFile

Operation = Literal["read", "write", "sync"]


class DiskFaults:
    """The faults of one disk, and how often each operation was asked of it (`calls`)."""

    def __init__(self) -> None:
        self.free_bytes: int | None = None
        """Bytes that can still be written; None: any number."""
        self.failing: set[Operation] = set()
        """Operations that give EIO."""
        self.longest_write_bytes: int | None = None
        """A single write takes no more than this many bytes; None: all."""
        self.sync_gate = threading.Event()
        """An fsync waits until this is set. It is, unless a test clears it."""
        self.sync_gate.set()
        self.suffixes: tuple[str, ...] = (".log",)
        """Only files whose names end so are struck."""
        self.calls: Counter[Operation] = Counter()
        self._synced_bytes: dict[Path, int] = {}

    def open_file(self, path: Path, create: bool = False) -> LogFile:
        return _FaultyFile(path, create, self)

    def strikes(self, operation: Operation, path: Path) -> bool:
        return operation in self.failing and path.name.endswith(self.suffixes)

    def note_size(self, path: Path, size_bytes: int) -> None:
        """Take `size_bytes` of a file as safe, unless it is known: what was there before the test is on disk."""
        self._synced_bytes.setdefault(path, size_bytes)

    def note_sync(self, path: Path, size_bytes: int) -> None:
        self._synced_bytes[path] = size_bytes

    def lose_unsynced(self) -> None:
        """Cut every file that was opened here to what its last fsync covered, as a power cut may."""
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
