"""Limits the memory of unfinished requests over all connections."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from heapq import heappop, heappush


class MemoryBudget:
    """A number of bytes to acquire and release. While a connection waits for memory, its socket is not read.

    The smallest waiting request is served first, so clients that announce large requests and send nothing do not block
    small ones. A request larger than the whole budget is granted when nothing else is: otherwise it could never run.
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
        """Acquire `size_bytes` now and return True, or return False and call `granted` after acquiring them later."""
        if self.try_acquire(size_bytes):
            return True
        heappush(self._waiting, (size_bytes, next(self._numbers), granted))
        return False

    def try_acquire(self, size_bytes: int) -> bool:
        """Acquire `size_bytes` now, or return False."""
        if not self._fits(size_bytes):
            return False
        self.used_bytes += size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        """Release memory and grant it to waiting requests. A `granted` callback may call this, without recursion."""
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
