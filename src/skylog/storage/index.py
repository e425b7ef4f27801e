"""The two sparse indexes of a segment: from an offset to a position, and from a time to an offset.

Both files are sequences of 64-bit little-endian integers in ascending order. The newest entries stay in memory and
are written in blocks, so that an append needs no system call for the indexes.

* `.index`: one integer per entry, `(offset - base_offset) << 32 | position`: a batch with this base offset starts
  at this position.
* `.timeindex`: two integers per entry, `(timestamp, offset)`: no record before `offset` has a later timestamp than
  this one, and the batch at `offset` is the first that reached it.

When a segment is closed, its indexes are sealed with two more integers: the size of the log file that they belong to,
and "SKIX" with the CRC-32C of everything before. "SKIA" in its place means that the segment has aborted transactions,
in a third file: see `aborted_index`. An index can always be rebuilt from the log, which is the truth. It is rebuilt if
it is missing, or if the seal of a closed segment is missing, does not match, or belongs to another log file.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from array import array
from bisect import bisect_left, bisect_right
from itertools import pairwise
from operator import lt
from pathlib import Path
from typing import Final

from skylog.records.checksum import crc32c
from skylog.storage.files import LogFile, OpenFile

SPILL_COUNT: Final = 1024
ITEM_BYTES: Final = 8
_CHUNK_BYTES: Final = 1 << 20
_POSITION_MASK: Final = 0xFFFFFFFF
_SEAL_COUNT: Final = 2
_SEAL_MAGIC: Final = int.from_bytes(b"SKIX", "big")
_FLAGGED_MAGIC: Final = int.from_bytes(b"SKIA", "big")


class IntegerFile:
    """An append-only sequence of 64-bit integers: `stored` in a memory-mapped file, followed by a `tail` in memory.

    `is_flagged` is the flag that the file was sealed with when it was opened.
    """

    __slots__ = (
        "_intact",
        "_map",
        "_open_file",
        "_seal",
        "is_flagged",
        "path",
        "sealed_size_bytes",
        "stored_count",
        "tail",
    )

    def __init__(self, path: Path, width: int, open_file: OpenFile = LogFile) -> None:
        self.path = path
        self.tail = array("q")
        self._open_file = open_file
        self._map: memoryview | None = None
        self._seal = 0
        self._intact: bool | None = None
        self.sealed_size_bytes: int | None = None
        self.is_flagged = False
        count = self._read_seal()
        self.stored_count = count // width * width

    def _read_seal(self) -> int:
        """Read the seal if there is one. Return the number of integers before it."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return 0
        try:
            count, odd_bytes = divmod(os.fstat(fd).st_size, ITEM_BYTES)
            if count >= _SEAL_COUNT and not odd_bytes:
                seal = array("q", os.pread(fd, _SEAL_COUNT * ITEM_BYTES, (count - _SEAL_COUNT) * ITEM_BYTES))
                if seal[1] >> 32 in (_SEAL_MAGIC, _FLAGGED_MAGIC):
                    self.is_flagged = seal[1] >> 32 == _FLAGGED_MAGIC
                    self.sealed_size_bytes, self._seal = seal[0], seal[1] & 0xFFFFFFFF
                    count -= _SEAL_COUNT
        finally:
            os.close(fd)
        return count

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

    def was_intact(self) -> bool:
        """Whether the integers in the file matched their seal when it was opened. Reads all of them, once."""
        if self._intact is None:
            size_bytes = self.sealed_size_bytes
            self._intact = size_bytes is not None and self._checksum(size_bytes, b"") == self._seal
        return self._intact

    def append(self, item: int) -> None:
        """Append an integer. If writing fails, it stays in memory and is written with later ones."""
        tail = self.tail
        tail.append(item)
        if len(tail) % SPILL_COUNT == 0:
            try:
                self._write(tail)
            except OSError:
                return
            self.stored_count += len(tail)
            del tail[:]

    def seal(self, size_bytes: int, *, is_flagged: bool = False) -> None:
        """Write everything, with the seal for a log file of `size_bytes`. Stays readable if it raises OSError."""
        tail = self.tail
        checksum = self._checksum(size_bytes, tail.tobytes())
        magic = _FLAGGED_MAGIC if is_flagged else _SEAL_MAGIC
        self._write(tail + array("q", (size_bytes, magic << 32 | checksum)))
        self.stored_count += len(tail)
        self.sealed_size_bytes, self._seal = size_bytes, checksum
        del tail[:]

    def _checksum(self, size_bytes: int, tail: bytes) -> int:
        return crc32c(size_bytes.to_bytes(ITEM_BYTES, "little"), crc32c(tail, self._stored_checksum()))

    def _stored_checksum(self) -> int:
        """Read the file with `read`: where a sector cannot be read, a memory map would end the process."""
        checksum, left_bytes = crc32c(b""), self.stored_count * ITEM_BYTES
        if not left_bytes:
            return checksum
        with open(self.path, "rb", buffering=0) as file:
            while left_bytes:
                chunk = file.read(min(left_bytes, _CHUNK_BYTES))
                if not chunk:
                    raise OSError(errno.EIO, "the index is shorter than it was", str(self.path))
                checksum = crc32c(chunk, checksum)
                left_bytes -= len(chunk)
        return checksum

    def _write(self, items: array[int]) -> None:
        """Write `items` after the stored ones, over a seal or the remains of a failed write."""
        self.was_intact()  # cannot be checked after the seal is overwritten
        file = self._open_file(self.path, True)
        file.truncate(self.stored_count * ITEM_BYTES)
        self.sealed_size_bytes = None
        file.append(items.tobytes())

    def truncate(self, count: int) -> None:
        if count >= self.stored_count:
            del self.tail[count - self.stored_count :]
            return
        del self.tail[:]
        self._map = None
        self.sealed_size_bytes = None
        self.stored_count = count
        with contextlib.suppress(FileNotFoundError):
            os.truncate(self.path, count * ITEM_BYTES)


class OffsetIndex:
    """Maps an offset to the position of a batch at or before it. One entry per `index.interval.bytes` or so."""

    __slots__ = ("_base_offset", "items")

    def __init__(self, path: Path, base_offset: int, open_file: OpenFile = LogFile) -> None:
        self._base_offset = base_offset
        self.items = IntegerFile(path, 1, open_file)

    def append(self, offset: int, position: int) -> None:
        self.items.append((offset - self._base_offset) << 32 | position)

    def lookup(self, offset: int) -> tuple[int, int]:
        """Return offset and position of the last entry at or before `offset`; the segment's start if none."""
        key = (offset - self._base_offset) << 32 | _POSITION_MASK
        tail = self.items.tail
        if tail and tail[0] <= key:
            item = tail[bisect_right(tail, key) - 1]
        else:
            stored = self.items.stored
            index = bisect_right(stored, key)
            if not index:
                return self._base_offset, 0
            item = stored[index - 1]
        return self._base_offset + (item >> 32), item & _POSITION_MASK

    def boundary(self, position: int) -> int:
        """Return the largest position of an entry at or below `position`; 0 if there is none."""
        tail = self.items.tail
        if tail and tail[0] & _POSITION_MASK <= position:
            return tail[bisect_right(tail, position, key=_position) - 1] & _POSITION_MASK
        stored = self.items.stored
        index = bisect_right(stored, position, key=_position)
        return int(stored[index - 1]) & _POSITION_MASK if index else 0

    def lookup_position(self, position: int) -> tuple[int, int]:
        """Return offset and position of the last entry at or before `position`; the segment's start if none."""
        index = self._count_to(position)
        return self._entry(index - 1) if index else (self._base_offset, 0)

    def first_from(self, position: int) -> tuple[int, int] | None:
        """Return offset and position of the first entry at or after `position`."""
        index = self._count_to(position - 1)
        return self._entry(index) if index < len(self.items) else None

    def between(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return offset and position of each entry from position `start` up to `stop`, exclusive."""
        return [self._entry(index) for index in range(self._count_to(start - 1), self._count_to(stop - 1))]

    def _count_to(self, position: int) -> int:
        """Return the number of entries at or below `position`."""
        return bisect_right(self.items, position, key=_position)

    def _entry(self, index: int) -> tuple[int, int]:
        item = self.items[index]
        return self._base_offset + (item >> 32), item & _POSITION_MASK

    def truncate_to(self, end_offset: int, size_bytes: int) -> None:
        """Remove entries at or after `end_offset`, or at or beyond `size_bytes`."""
        before_offset = bisect_left(self.items, (end_offset - self._base_offset) << 32)
        self.items.truncate(min(before_offset, self._count_to(size_bytes - 1)))

    def is_plausible(self, size_bytes: int) -> bool:
        """Whether the stored entries ascend and fit a log of this size: the only possible check without a seal."""
        stored = self.items.stored
        positions = [-1, *(item & _POSITION_MASK for item in stored), size_bytes]
        return _ascends(positions) and _ascends([-1, *(item >> 32 for item in stored)])


def _position(item: int) -> int:
    return item & _POSITION_MASK


def _ascends(numbers: list[int]) -> bool:
    return all(lt(*pair) for pair in pairwise(numbers))


class TimeIndex:
    """Maps a time to an offset before which every record is earlier."""

    __slots__ = ("items",)

    def __init__(self, path: Path, open_file: OpenFile = LogFile) -> None:
        self.items = IntegerFile(path, 2, open_file)

    @property
    def last(self) -> tuple[int, int]:
        """The latest timestamp and its offset; (-1, -1) if the index is empty."""
        count = len(self.items)
        return (self.items[count - 2], self.items[count - 1]) if count else (-1, -1)

    def append(self, timestamp: int, offset: int) -> None:
        """Append an entry unless the index already has this timestamp or a later one."""
        if timestamp > self.last[0]:
            self.items.append(timestamp)
            self.items.append(offset)

    def lookup(self, timestamp: int) -> int | None:
        """Return an offset before which every record is earlier than `timestamp`; None for the segment's start."""
        tail = self.items.tail
        if tail and tail[0] < timestamp:
            return int(tail[bisect_left(memoryview(tail)[::2], timestamp) * 2 - 1])
        stored = self.items.stored
        index = bisect_left(stored[::2], timestamp)
        return int(stored[index * 2 - 1]) if index else None

    def truncate_to(self, end_offset: int) -> None:
        offsets = range(1, len(self.items), 2)
        self.items.truncate(2 * bisect_left(offsets, end_offset, key=self.items.__getitem__))

    def is_plausible(self, base_offset: int) -> bool:
        """Whether the stored entries ascend in time and offset: the only possible check without a seal."""
        stored = self.items.stored
        return _ascends([-1, *stored[::2]]) and _ascends([base_offset - 1, *stored[1::2]])
