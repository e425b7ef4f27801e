"""The file layer of storage: every byte that reaches the disk goes through here.

`LogFile` is a file that grows at its end. Its constructor is handed to whoever opens logs, so that tests can put
files that fail in its place. `FileSlice` is what a read gives: a range of a file that `sendfile` can send.
"""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

Buffer = bytes | bytearray | memoryview


class LogFile:
    """A file that is appended to, read at positions, and cut.

    Invariant: bytes below `size_bytes` are as they were appended. A write that fails half-way leaves `size_bytes`
    as it was; what it left beyond is overwritten by the next append and, after a crash, cut by recovery.

    The descriptor is closed when the last user lets go of the object: a reader that still sends from a file that
    retention has removed keeps it alive until it is done.
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
        """Write all of `data` at the end, or raise OSError and leave the file as it was."""
        try:
            written = self.write_at(data, self.size_bytes)
            while written < len(data):
                written += self.write_at(memoryview(data)[written:], self.size_bytes + written)
        except OSError:
            with contextlib.suppress(OSError):  # the first error is the one to tell
                os.ftruncate(self._fd, self.size_bytes)
            raise
        self.size_bytes += written

    def append_all(self, parts: Sequence[Buffer], length: int) -> None:
        """Like `append`, for several parts of `length` bytes together in one call."""
        if self.write_all_at(parts, self.size_bytes) == length:
            self.size_bytes += length
        else:  # a disk that is filling up, or a limit of the system: byte for byte then, with its own error
            self.append(b"".join(parts))

    def write_at(self, data: Buffer, position: int) -> int:
        return os.pwrite(self._fd, data, position)

    def write_all_at(self, parts: Sequence[Buffer], position: int) -> int:
        return os.pwritev(self._fd, parts, position)

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` bytes from `position`, fewer only at the end of the file."""
        length = min(length, self.size_bytes - position)
        data = os.pread(self._fd, length, position) if length > 0 else b""
        while len(data) < length:
            more = os.pread(self._fd, length - len(data), position + len(data))
            if not more:
                raise OSError(f"{self.path} ends at byte {position + len(data)}, {self.size_bytes} were expected")
            data += more
        return data

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self._fd, size_bytes)
        self.size_bytes = size_bytes

    def trim(self) -> None:
        """Cut off what a failed write has left beyond the end."""
        if os.fstat(self._fd).st_size != self.size_bytes:
            os.ftruncate(self._fd, self.size_bytes)

    def sync(self) -> None:
        os.fdatasync(self._fd)


OpenFile = Callable[[Path, bool], LogFile]


class FileSlice(NamedTuple):
    """A range of a log file. Holding it keeps the file readable, whatever happens to its name."""

    file: LogFile
    position: int
    length: int

    def read(self) -> bytes:
        return self.file.read(self.position, self.length)


class FilePool:
    """Open files of closed segments, the most recently used ones only.

    A segment asks for its file at each read; beyond `capacity` the one that was used longest ago is let go. Used from
    the thread that appends.
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
        """Keep a file that is open already."""
        self._files[file.path] = file
        if len(self._files) > self._capacity:
            self._files.popitem(last=False)

    def discard(self, path: Path) -> None:
        self._files.pop(path, None)


def sync_directory(path: Path) -> None:
    """Make the names in `path` durable: a new file is only safe once its directory entry is."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_file(path: Path) -> None:
    """Make the content of `path` durable, unless it has been removed meanwhile."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fdatasync(fd)
    finally:
        os.close(fd)


def replace_file(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Put `content` at `path` atomically: after a crash there is the old file or the new one.

    Without `durable` nothing waits for the disk, and a crash of the machine may leave either.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_directory(path.parent)
