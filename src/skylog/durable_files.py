"""Writes files durably: replaces them atomically, and syncs them and their directories."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

try:
    import fcntl
except ImportError:  # Windows
    _FULL_SYNC = None
else:
    _FULL_SYNC = getattr(fcntl, "F_FULLFSYNC", None)

_sync_data: Final = getattr(os, "fdatasync", os.fsync)


def sync_data(fd: int) -> None:
    """Make the content of an open file durable, with the strongest call of the platform.

    macOS has no fdatasync, and its fsync leaves data in the cache of the drive; F_FULLFSYNC does not.
    """
    if _FULL_SYNC is not None:
        fcntl.fcntl(fd, _FULL_SYNC)
    else:
        _sync_data(fd)


def sync_directory(path: Path) -> None:
    """Make the names in `path` durable: a new file is safe only after its directory entry is."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_file(path: Path) -> None:
    """Make the content of `path` durable. Do nothing if the file does not exist."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        sync_data(fd)
    finally:
        os.close(fd)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def replace_file(path: Path, content: bytes, *, durable: bool = True, private: bool = False) -> None:
    """Replace `path` with `content` atomically: after a crash, the old or the new file is there.

    If `durable` is false, nothing is synced, and a crash of the machine may leave the old, the new or a torn file.
    If `private` is true, only the owner may read the new file.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        if private:
            temporary.unlink(missing_ok=True)  # it would keep its mode
        with open(temporary, "wb", opener=_open_private if private else None) as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):  # report the first error
            temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_directory(path.parent)
