"""How many bytes of unfinished requests may be in memory at once, over all connections."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from heapq import heappop, heappush


class MemoryBudget:
    """Bytes to be taken and given back. Who finds too few left waits, and its socket is not read meanwhile.

    The smallest request that waits is served first: many that announce a lot and send nothing do not stand in the way
    of those that need little. A request larger than the whole budget is let through when nobody else has anything: it
    could never run otherwise.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._numbers = itertools.count()
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._is_granting = False

    @property
    def has_waiters(self) -> bool:
        return bool(self._waiting)

    def acquire(self, size_bytes: int, granted: Callable[[], None]) -> bool:
        """Take `size_bytes` now (True), or have `granted` called when they have been taken (False)."""
        if self.try_acquire(size_bytes):
            return True
        heappush(self._waiting, (size_bytes, next(self._numbers), granted))
        return False

    def try_acquire(self, size_bytes: int) -> bool:
        """Take `size_bytes` now, or not at all."""
        if not self._fits(size_bytes):
            return False
        self.used_bytes += size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        """Give back. Who is granted memory by this may give it back at once: that must not enter the loop again."""
        self.used_bytes -= size_bytes
        if self._is_granting:
            return
        self._is_granting = True
        try:
            while self._waiting and self._fits(self._waiting[0][0]):
                waited_bytes, _, granted = heappop(self._waiting)
                self.used_bytes += waited_bytes
                granted()
        finally:
            self._is_granting = False

    def _fits(self, size_bytes: int) -> bool:
        return not self.used_bytes or self.used_bytes + size_bytes <= self.limit_bytes
