"""Memory that responses are received into, and split into frames.

One read should get a whole response, with its size before it: so there is room for a response like the last one and
some more. A read that leaves room says that there is nothing else to read. A large frame then keeps the memory that it
is in, until it is recycled, and a small one is copied. No byte of a large frame is copied, except those that came with
the frame before it.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from skylog.errors import MalformedRequestError
from skylog.protocol.frames import SIZE_BYTES

SLACK_BYTES: Final = 4096
_SIZE: Final = Struct(">i")


class FrameMemory:
    """The received bytes of one connection that are not part of a whole frame yet, and room for more."""

    __slots__ = ("_expected_bytes", "_filled", "_max_frame_bytes", "_memory", "_spare")

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._memory = memoryview(bytearray(SLACK_BYTES))
        self._spare = memoryview(b"")
        self._filled = 0
        self._expected_bytes = 0  # of the present frame and its size, or those of the last large one

    @property
    def room(self) -> memoryview:
        """Where to receive to. Never empty."""
        return self._memory[self._filled : self._expected_bytes + SLACK_BYTES]

    def received(self, count: int) -> list[memoryview]:
        """Return the frames that are complete with `count` more bytes. Each owns its memory.

        Raises MalformedRequestError for an impossible size.
        """
        frames = []
        self._filled += count
        while self._filled >= SIZE_BYTES:
            (size,) = _SIZE.unpack_from(self._memory)
            if not SIZE_BYTES <= size <= self._max_frame_bytes:
                raise MalformedRequestError(f"a frame of {size} bytes")
            end = SIZE_BYTES + size
            if end > self._filled:
                self._make_room(end)
                break
            frames.append(self._cut(end))
        return frames

    def _make_room(self, end: int) -> None:
        """Have room for a frame that ends at `end`."""
        self._expected_bytes = end
        if end + SLACK_BYTES > len(self._memory):
            started = self._memory[: self._filled]
            self._memory = self._take(end + SLACK_BYTES)
            self._memory[: self._filled] = started

    def _cut(self, end: int) -> memoryview:
        """Return the first frame, which ends at `end`. What follows it moves to the beginning."""
        memory = self._memory
        frame, rest = memory[SIZE_BYTES:end], memory[end : self._filled]
        if end <= SLACK_BYTES:
            frame = memoryview(bytearray(frame))
        else:
            self._expected_bytes = end
            self._memory = self._take(len(rest) + SLACK_BYTES)
        self._memory[: len(rest)] = rest
        self._filled = len(rest)
        return frame

    def _take(self, length: int) -> memoryview:
        if length <= len(self._spare):
            taken, self._spare = self._spare, memoryview(b"")
            return taken
        return memoryview(bytearray(length))

    def recycle(self, frame: memoryview) -> None:
        """Use the memory of a frame again. Nothing may refer to it any more.

        The memory of a large response is fresh from the kernel otherwise, which costs as much as to receive it.
        """
        if not isinstance(frame.obj, bytearray):
            return
        memory = memoryview(frame.obj)
        if not self._filled and len(memory) > len(self._memory):
            self._memory = memory
        elif len(memory) > len(self._spare):
            self._spare = memory
