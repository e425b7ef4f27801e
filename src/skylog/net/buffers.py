"""Memory for frames that are too large for the shared buffer, used again and again.

Fresh memory has to be mapped and zeroed by the kernel, which costs more than receiving into it.
"""

from __future__ import annotations

import mmap
from typing import Final

SMALLEST_BYTES: Final = 16 * 1024
LARGEST_BYTES: Final = 4 * 1024 * 1024
KEPT_BYTES: Final = 16 * 1024 * 1024


class FrameBuffers:
    """Buffers by powers of two. A few are kept when they come back; larger ones than `LARGEST_BYTES` never are.

    Those are mapped and not zeroed: a client that announces a large frame costs nothing until it sends one.
    """

    def __init__(self) -> None:
        self._spare: dict[int, list[bytearray]] = {}
        self._kept_bytes = 0

    def take(self, length: int) -> bytearray | mmap.mmap:
        """A buffer of at least `length` bytes, with anything in it."""
        if length > LARGEST_BYTES:
            return mmap.mmap(-1, length)
        size_bytes = max(SMALLEST_BYTES, 1 << (length - 1).bit_length())
        spare = self._spare.get(size_bytes)
        if spare:
            self._kept_bytes -= size_bytes
            return spare.pop()
        return bytearray(size_bytes)

    def give(self, buffer: bytearray | mmap.mmap) -> None:
        """Take back a buffer that nobody looks at any more."""
        if isinstance(buffer, bytearray) and self._kept_bytes + len(buffer) <= KEPT_BYTES:
            self._kept_bytes += len(buffer)
            self._spare.setdefault(len(buffer), []).append(buffer)
