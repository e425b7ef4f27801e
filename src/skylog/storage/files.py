"""The file layer of storage, used for all log and index writes.

`LogFile` is a file that grows at its end. Code that opens logs receives its constructor as an argument, so that tests
can use files that fail. `FileSlice` is the result of a read: a range of a file that `sendfile` can send.
"""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from skylog.durable_files import sync_data

Buffer = bytes | bytearray | memoryview


def _write_joined(fd: int, parts: Sequence[Buffer], position: int) -> int:
    return os.pwrite(fd, b"".join(parts), position)


_write_all: Final[Callable[[int, Sequence[Buffer], int], int]] = getattr(os, "pwritev", _write_joined)


class LogFile:
    """A file that can be appended to, read at any position, and truncated.

    Invariant: bytes below `size_bytes` are as they were appended. A write that fails half-way does not change
    `size_bytes`. The next append overwrites the bytes beyond it, and after a crash recovery truncates them. Only a
    repair overwrites bytes below it, if they are damaged.

    The descriptor is closed when the object is no longer referenced. So a reader can finish sending from a file that
    retention has removed.
    """

    __slots__ = ("_fd", "path", "size_bytes")

    def __init__(self, path: Path, create: bool = False) -> None:
        self._fd = -1
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)
        self.size_bytes = os.fstat(self._fd).st_size

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def fileno(self) -> int:
        return self._fd

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end, or raise OSError and leave the file unchanged."""
        try:
            written = self.write_at(data, self.size_bytes)
            while written < len(data):
                written += self.write_at(memoryview(data)[written:], self.size_bytes + written)
        except OSError:
            with contextlib.suppress(OSError):  # report the first error
                os.ftruncate(self._fd, self.size_bytes)
            raise
        self.size_bytes += written

    def append_all(self, parts: Sequence[Buffer], length: int) -> None:
        """Append several parts, `length` bytes in total, with one call. Fails like `append`."""
        if self.write_all_at(parts, self.size_bytes) == length:
            self.size_bytes += length
        else:  # the disk is nearly full, or a limit of the system call: `append` completes the write or raises
            self.append(b"".join(parts))

    def overwrite(self, data: Buffer, position: int) -> None:
        """Replace bytes below `size_bytes`. Raises OSError, and leaves any part of them replaced."""
        assert position + len(data) <= self.size_bytes, "write beyond the end"
        written = 0
        while written < len(data):
            written += self.write_at(memoryview(data)[written:], position + written)

    def write_at(self, data: Buffer, position: int) -> int:
        return os.pwrite(self._fd, data, position)

    def write_all_at(self, parts: Sequence[Buffer], position: int) -> int:
        return _write_all(self._fd, parts, position)

    def read(self, position: int, length: int) -> bytes:
        """Return `length` bytes from `position`, fewer only at the end of the file."""
        length = min(length, self.size_bytes - position)
        data = os.pread(self._fd, length, position) if length > 0 else b""
        while len(data) < length:
            more = os.pread(self._fd, length - len(data), position + len(data))
            if not more:
                raise OSError(f"{self.path} ends at byte {position + len(data)}, expected {self.size_bytes}")
            data += more
        return data

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self._fd, size_bytes)
        self.size_bytes = size_bytes

    def trim(self) -> None:
        """Truncate what a failed write has left beyond the end."""
        if os.fstat(self._fd).st_size != self.size_bytes:
            os.ftruncate(self._fd, self.size_bytes)

    def sync(self) -> None:
        sync_data(self._fd)


OpenFile = Callable[[Path, bool], LogFile]


class FileSlice(NamedTuple):
    """A range of a log file. The file stays readable while a slice exists, even after it is renamed or unlinked."""

    file: LogFile
    position: int
    length: int

    def read(self) -> bytes:
        return self.file.read(self.position, self.length)


class FilePool:
    """Caches the open files of closed segments.

    A segment calls `get` at each read. Beyond `capacity`, the least recently used file is dropped. Used from the thread
    that appends.
    """

    def __init__(self, open_file: OpenFile = LogFile, capacity: int = 512) -> None:
        self.open_file = open_file
        self._capacity = capacity
        self._files: OrderedDict[Path, LogFile] = OrderedDict()

    def get(self, path: Path) -> LogFile:
        file = self._files.get(path)
        if file is None:
            file = self.open_file(path, False)
            self.put(file)
        else:
            self._files.move_to_end(path)
        return file

    def put(self, file: LogFile) -> None:
        """Add a file that is already open."""
        self._files[file.path] = file
        if len(self._files) > self._capacity:
            self._files.popitem(last=False)

    def discard(self, path: Path) -> None:
        self._files.pop(path, None)
