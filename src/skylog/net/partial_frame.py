"""A frame that has been received only in part, and the memory for the rest."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Final

from skylog.net.budget import MemoryBudget
from skylog.net.buffers import FrameBuffers
from skylog.net.transport import Transport

UNGRANTED_BYTES: Final = 16 * 1024
_RECEIVES_AT_ONCE: Final = 16


class PartialFrame:
    """Collects one frame. A large one needs memory from the budget before more of it is read."""

    __slots__ = ("_budget", "_buffer", "_buffers", "_filled", "_granted_bytes", "_view", "is_released", "length")

    def __init__(
        self,
        start: memoryview,
        length: int,
        budget: MemoryBudget,
        buffers: FrameBuffers,
        on_granted: Callable[[], None],
    ) -> None:
        self.length = length
        self.is_released = False
        self._budget = budget
        self._buffers = buffers
        self._buffer: bytearray | mmap.mmap | None = None
        self._view: memoryview | None = None
        self._filled = len(start)
        self._granted_bytes = 0
        if length <= UNGRANTED_BYTES or budget.acquire(length, lambda: self._granted(kept, on_granted)):
            self._begin(start)
        else:
            kept = bytes(start)

    def _granted(self, kept: bytes, on_granted: Callable[[], None]) -> None:
        """Called when the budget has granted the memory. The client may have disconnected meanwhile."""
        if self.is_released:
            self._budget.release(self.length)
        else:
            self._begin(memoryview(kept))
            on_granted()

    def _begin(self, start: memoryview) -> None:
        self._granted_bytes = self.length if self.length > UNGRANTED_BYTES else 0
        self._buffer = self._buffers.take(self.length)
        self._view = memoryview(self._buffer)[: self.length]
        self._view[: self._filled] = start

    @property
    def is_waiting(self) -> bool:
        """Whether the frame still waits for memory. The socket must not be read meanwhile."""
        return self._view is None

    @property
    def holds_grant(self) -> bool:
        return self._granted_bytes > 0

    def receive(self, transport: Transport) -> memoryview | None:
        """Receive more. Return the frame when it is complete. Raises ConnectionError if the client disconnects."""
        assert self._view is not None, "read without a grant"
        for _ in range(_RECEIVES_AT_ONCE):
            count = transport.receive_into(self._view[self._filled :])
            if not count:
                raise ConnectionError("the client disconnected inside a frame")
            self._filled += count
            if self._filled == self.length:
                return self._view
        return None

    def release(self) -> None:
        """Release the memory. The frame must not be used after this."""
        self.is_released = True
        if self._buffer is not None:
            self._buffers.give(self._buffer)
            self._buffer = self._view = None
        if self._granted_bytes:
            granted, self._granted_bytes = self._granted_bytes, 0
            self._budget.release(granted)
