"""Whether the folder of a log still has its name.

A deleted topic's folder is renamed, and a new topic may take the name at once. A thread that still works for the old
log must not write into the new one's folder.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class FolderName:
    """Orders writes by path in other threads before the renaming of the folder."""

    __slots__ = ("_is_given_up", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_given_up = False

    def use(self, write: Callable[[], None]) -> None:
        """Call `write`, which uses paths in the folder, unless the name has been given up."""
        with self._lock:
            if not self._is_given_up:
                write()

    @contextmanager
    def give_up(self) -> Iterator[None]:
        """Rename the folder inside this block: no `use` is under way, and none follows."""
        with self._lock:
            self._is_given_up = True
            yield
