"""Guards the folder name of a log against use after the log is deleted.

A deleted topic's folder is renamed, and a new topic may use the name immediately. A thread that still works for the old
log must not write into the new log's folder.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class FolderName:
    """Makes writes by path, in any thread, finish before the folder is renamed or not start at all."""

    __slots__ = ("_is_given_up", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_given_up = False

    def use(self, write: Callable[[], None]) -> None:
        """Call `write`, which uses paths in the folder, unless `give_up` was entered before."""
        with self._lock:
            if not self._is_given_up:
                write()

    @contextmanager
    def give_up(self) -> Iterator[None]:
        """Rename the folder inside this block: no `use` is running, and later ones do nothing."""
        with self._lock:
            self._is_given_up = True
            yield
