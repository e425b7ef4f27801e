"""Reusable buffers for frames that are too large for the shared buffer.

The kernel must map and zero new memory, which costs more than receiving into it.
"""

from __future__ import annotations

import mmap
from typing import Final

SMALLEST_BYTES: Final = 16 * 1024
LARGEST_BYTES: Final = 4 * 1024 * 1024
KEPT_BYTES: Final = 16 * 1024 * 1024


class FrameBuffers:
    """Buffers by powers of two. Up to `KEPT_BYTES` of returned buffers are kept, of at most `LARGEST_BYTES` each.

    Larger ones are mapped and not zeroed, so a client that announces a large frame costs nothing until it sends it.
    """

    def __init__(self) -> None:
        self._spare: dict[int, list[bytearray]] = {}
        self._kept_bytes = 0

    def take(self, length: int) -> bytearray | mmap.mmap:
        """Return a buffer of at least `length` bytes, with arbitrary content."""
        if length > LARGEST_BYTES:
            return mmap.mmap(-1, length)
        size_bytes = max(SMALLEST_BYTES, 1 << (length - 1).bit_length())
        spare = self._spare.get(size_bytes)
        if spare:
            self._kept_bytes -= size_bytes
            return spare.pop()
        return bytearray(size_bytes)

    def give(self, buffer: bytearray | mmap.mmap) -> None:
        """Return a buffer that is no longer used."""
        if isinstance(buffer, bytearray) and self._kept_bytes + len(buffer) <= KEPT_BYTES:
            self._kept_bytes += len(buffer)
            self._spare.setdefault(len(buffer), []).append(buffer)
