"""Files that survive a crash, and the exchange of two directories in one step. Knows no tables."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_NOT_SUPPORTED: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP})


def sync(path: Path) -> None:
    """Bring a file, or the names in a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(paths: Iterable[Path]) -> None:
    for path in paths:
        sync(path)


def write_synced(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    sync(path)


def exchange(one: Path, other: Path) -> None:
    """Let two directories change places: whoever looks sees one or the other under a name, never none.

    Raises OSError, with ENOSYS where the system has no such call.
    """
    call = _renameat2()
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(other))
    if call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(one), None, str(other))


def can_exchange(directory: Path) -> bool:
    """Whether the file system of `directory` can do so; tried with two empty directories in it."""
    one, other = (directory / uuid.uuid4().hex for _ in range(2))
    one.mkdir()
    other.mkdir()
    try:
        exchange(one, other)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise
        return False
    finally:
        one.rmdir()
        other.rmdir()
    return True


def remove_tree(path: Path) -> None:
    """Remove a directory that somebody may still write to, such as an executor that outlives its driver."""
    shutil.rmtree(path, ignore_errors=True)  # what is left is removed when the table is opened the next time


def _renameat2() -> Any:
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
