"""How many bytes of unfinished requests may be in memory at once, over all connections."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class MemoryBudget:
    """Bytes to be taken and given back. Who finds too few left waits in line, and its socket is not read meanwhile.

    A request larger than the whole budget is let through when nobody else has anything: it could never run otherwise.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def has_waiters(self) -> bool:
        return bool(self._waiting)

    def acquire(self, size_bytes: int, granted: Callable[[], None]) -> bool:
        """Take `size_bytes` now (True), or have `granted` called when they have been taken (False)."""
        if not self._waiting and self._fits(size_bytes):
            self.used_bytes += size_bytes
            return True
        self._waiting.append((size_bytes, granted))
        return False

    def release(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes
        while self._waiting and self._fits(self._waiting[0][0]):
            waited_bytes, granted = self._waiting.popleft()
            self.used_bytes += waited_bytes
            granted()

    def _fits(self, size_bytes: int) -> bool:
        return not self.used_bytes or self.used_bytes + size_bytes <= self.limit_bytes
