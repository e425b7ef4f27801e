"""The two sparse indexes of a segment: where an offset lies, and from where a time on.

Both files are sequences of 64-bit little-endian integers in ascending order. The newest entries wait in memory and
are written out in blocks, so that an append costs no system call for its index; a crash loses them, and recovery
makes them again from the log, which is the truth. Entries are never needed for correctness, only for speed.

* `.index`: one integer per entry, `(offset - base_offset) << 32 | position`: a batch with this base offset starts
  at this position.
* `.timeindex`: two integers per entry, `(timestamp, offset)`: no record before `offset` has a later timestamp than
  this one, and the batch at `offset` is the first that reached it.
"""

from __future__ import annotations

import mmap
import os
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Final

SPILL_COUNT: Final = 1024
ITEM_BYTES: Final = 8
_POSITION_MASK: Final = 0xFFFFFFFF


class IntegerFile:
    """An append-only sequence of 64-bit integers: `stored` in a file, mapped for reading, and a `tail` in memory."""

    __slots__ = ("_map", "path", "stored_count", "tail")

    def __init__(self, path: Path, width: int) -> None:
        self.path = path
        self.tail = array("q")
        self._map: memoryview | None = None
        try:
            size_bytes = path.stat().st_size
        except FileNotFoundError:
            size_bytes = 0
        self.stored_count = size_bytes // (ITEM_BYTES * width) * width

    def __len__(self) -> int:
        return self.stored_count + len(self.tail)

    @property
    def stored(self) -> memoryview:
        """The integers in the file."""
        if self._map is None or len(self._map) < self.stored_count:
            if not self.stored_count:
                return memoryview(b"").cast("q")
            with open(self.path, "rb") as file:
                mapped = mmap.mmap(file.fileno(), self.stored_count * ITEM_BYTES, access=mmap.ACCESS_READ)
            self._map = memoryview(mapped).cast("q")
        return self._map[: self.stored_count]

    def __getitem__(self, index: int) -> int:
        if index >= self.stored_count:
            return self.tail[index - self.stored_count]
        return int(self.stored[index])

    def spill(self) -> None:
        """Write the tail to the file, at the place that it has, whatever a crash left there.

        An empty index leaves an empty file: a missing one is a sign of damage.
        """
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            start, data = self.stored_count * ITEM_BYTES, self.tail.tobytes()
            os.ftruncate(fd, start)
            written = 0
            while written < len(data):
                written += os.pwrite(fd, data[written:], start + written)
        finally:
            os.close(fd)
        self.stored_count += len(self.tail)
        del self.tail[:]

    def sync(self) -> None:
        if self.stored_count:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)

    def truncate(self, count: int) -> None:
        if count >= self.stored_count:
            del self.tail[count - self.stored_count :]
            return
        del self.tail[:]
        self._map = None
        self.stored_count = count
        os.truncate(self.path, count * ITEM_BYTES)


class OffsetIndex:
    """From an offset to the position of a batch at or before it. One entry per `index.interval.bytes` or so."""

    __slots__ = ("_base_offset", "_items")

    def __init__(self, path: Path, base_offset: int) -> None:
        self._base_offset = base_offset
        self._items = IntegerFile(path, width=1)

    def __len__(self) -> int:
        return len(self._items)

    @property
    def size_bytes(self) -> int:
        return len(self._items) * ITEM_BYTES

    def append(self, offset: int, position: int) -> None:
        tail = self._items.tail
        tail.append((offset - self._base_offset) << 32 | position)
        if len(tail) >= SPILL_COUNT:
            self._items.spill()

    def lookup(self, offset: int) -> tuple[int, int]:
        """Offset and position of the last entry at or before `offset`; the segment's start where there is none."""
        key = (offset - self._base_offset) << 32 | _POSITION_MASK
        tail = self._items.tail
        if tail and tail[0] <= key:
            item = tail[bisect_right(tail, key) - 1]
        else:
            stored = self._items.stored
            index = bisect_right(stored, key)
            if not index:
                return self._base_offset, 0
            item = stored[index - 1]
        return self._base_offset + (item >> 32), item & _POSITION_MASK

    def boundary(self, position: int) -> int:
        """The largest position of an entry at or below `position`; 0 where there is none."""
        tail = self._items.tail
        if tail and tail[0] & _POSITION_MASK <= position:
            return tail[bisect_right(tail, position, key=_position) - 1] & _POSITION_MASK
        stored = self._items.stored
        index = bisect_right(stored, position, key=_position)
        return int(stored[index - 1]) & _POSITION_MASK if index else 0

    def truncate_to(self, end_offset: int, size_bytes: int) -> None:
        """Forget entries from `end_offset` on, or that point beyond `size_bytes`."""
        count = len(self._items)
        while count:
            item = self._items[count - 1]
            if self._base_offset + (item >> 32) < end_offset and item & _POSITION_MASK < size_bytes:
                break
            count -= 1
        self._items.truncate(count)

    def is_sound(self, size_bytes: int) -> bool:
        """Whether the last entry can be true for a log file of this size: a cheap check when a segment is opened."""
        return not len(self) or self._items[len(self) - 1] & _POSITION_MASK < size_bytes

    def spill(self) -> None:
        self._items.spill()

    def sync(self) -> None:
        self._items.sync()


def _position(item: int) -> int:
    return item & _POSITION_MASK


class TimeIndex:
    """From a time to an offset before which nothing is as late."""

    __slots__ = ("_items",)

    def __init__(self, path: Path) -> None:
        self._items = IntegerFile(path, width=2)

    def __len__(self) -> int:
        return len(self._items) // 2

    @property
    def size_bytes(self) -> int:
        return len(self._items) * ITEM_BYTES

    @property
    def last(self) -> tuple[int, int]:
        """The latest timestamp and its offset; (-1, -1) where there is none."""
        count = len(self._items)
        return (self._items[count - 2], self._items[count - 1]) if count else (-1, -1)

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry unless the index already has this timestamp or a later one."""
        if timestamp > self.last[0]:
            tail = self._items.tail
            tail.append(timestamp)
            tail.append(offset)
            if len(tail) >= SPILL_COUNT:
                self._items.spill()

    def lookup(self, timestamp: int) -> int | None:
        """An offset before which every record is earlier than `timestamp`; None: search from the segment's start."""
        tail = self._items.tail
        if tail and tail[0] < timestamp:
            return int(tail[bisect_left(memoryview(tail)[::2], timestamp) * 2 - 1])
        stored = self._items.stored
        index = bisect_left(stored[::2], timestamp)
        return int(stored[index * 2 - 1]) if index else None

    def truncate_to(self, end_offset: int) -> None:
        count = len(self._items)
        while count and self._items[count - 1] >= end_offset:
            count -= 2
        self._items.truncate(count)

    def spill(self) -> None:
        self._items.spill()

    def sync(self) -> None:
        self._items.sync()
