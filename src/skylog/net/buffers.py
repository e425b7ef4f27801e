"""Memory for frames that are too large for the shared buffer, used again and again.

Fresh memory has to be mapped and zeroed by the kernel, which costs more than receiving into it.
"""

from __future__ import annotations

from typing import Final

SMALLEST_BYTES: Final = 16 * 1024
LARGEST_BYTES: Final = 4 * 1024 * 1024
KEPT_BYTES: Final = 16 * 1024 * 1024


class FrameBuffers:
    """Buffers by powers of two. A few are kept when they come back; larger ones than `LARGEST_BYTES` never are."""

    def __init__(self) -> None:
        self._spare: dict[int, list[bytearray]] = {}
        self._kept_bytes = 0

    def take(self, length: int) -> bytearray:
        """A buffer of at least `length` bytes, with anything in it."""
        if length > LARGEST_BYTES:
            return bytearray(length)
        size_bytes = max(SMALLEST_BYTES, 1 << (length - 1).bit_length())
        spare = self._spare.get(size_bytes)
        if spare:
            self._kept_bytes -= size_bytes
            return spare.pop()
        return bytearray(size_bytes)

    def give(self, buffer: bytearray) -> None:
        """Take back a buffer that nobody looks at any more."""
        if len(buffer) <= LARGEST_BYTES and self._kept_bytes + len(buffer) <= KEPT_BYTES:
            self._kept_bytes += len(buffer)
            self._spare.setdefault(len(buffer), []).append(buffer)
