"""Copies of large request frames, to be decoded in a thread so that the event loop is not held up."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from skylog.net import Connection, MemoryBudget

LARGE_FRAME_BYTES: Final = 64 * 1024


class HeldFrame:
    """A frame that stays valid after its handler has returned, until the end of the `with` block.

    It counts against the memory budget for requests.
    """

    __slots__ = ("_budget", "data")

    def __init__(self, data: bytes, budget: MemoryBudget) -> None:
        self.data = memoryview(data)
        self._budget = budget

    @classmethod
    def of_large(cls, connection: Connection, frame: memoryview) -> Self | None:
        """Copy a large frame. Returns None if the frame is small or the memory budget has no room for a copy."""
        size_bytes = len(frame)
        if size_bytes <= LARGE_FRAME_BYTES or not connection.budget.try_acquire(size_bytes):
            return None
        return cls(bytes(frame), connection.budget)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._budget.release(len(self.data))
