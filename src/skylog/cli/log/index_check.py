"""Compares the two indexes of a segment with its log, batch by batch, and finds the first wrong entry."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from skylog.records import BatchHeader
from skylog.storage.index import ITEM_BYTES, IntegerFile

_POSITION_MASK: Final = 0xFFFFFFFF
_OFFSET_WIDTH: Final = 1
_TIME_WIDTH: Final = 2


class IndexProblemError(Exception):
    """The first wrong byte of an index file, and the problem."""

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(problem)
        self.position = position
        self.problem = problem


class _Entries:
    """Iterates over the entries of an index file. The constructor raises FileNotFoundError."""

    def __init__(self, path: Path, width: int) -> None:
        size_bytes = path.stat().st_size
        items = IntegerFile(path, width)
        self.sealed_size_bytes = items.sealed_size_bytes
        self.is_intact = items.sealed_size_bytes is None or items.was_intact()
        # A copy: a running broker may truncate the file, which would make its mapping unreadable.
        self._items = memoryview(bytes(items.stored.cast("B"))).cast("q")
        self._width = width
        self._end = len(self._items) * ITEM_BYTES
        self._spare_bytes = 0 if items.sealed_size_bytes is not None else size_bytes - self._end
        self._taken = 0

    def peek(self) -> tuple[int, ...] | None:
        start = self._taken * self._width
        return tuple(self._items[start : start + self._width]) or None

    def take(self) -> None:
        self._taken += 1

    def problem(self, text: str) -> IndexProblemError:
        """Return an error about the next entry."""
        return IndexProblemError(self._taken * self._width * ITEM_BYTES, f"entry {self._taken} {text}")

    def finish(self, size_bytes: int) -> None:
        """Check the seal, if any, and that nothing follows the entries. Call this after checking all entries."""
        if self._spare_bytes > 0:
            raise IndexProblemError(self._end, f"{self._spare_bytes} trailing bytes are too few for an entry")
        if self.sealed_size_bytes not in (None, size_bytes):
            raise IndexProblemError(
                self._end, f"the seal is for a log of {self.sealed_size_bytes} bytes, but it has {size_bytes}"
            )
        if not self.is_intact:
            raise IndexProblemError(self._end, "the seal does not match the entries")


class OffsetIndexCheck:
    """Each entry must hold the position of a batch and its base offset."""

    def __init__(self, path: Path, base_offset: int) -> None:
        self._entries = _Entries(path, _OFFSET_WIDTH)
        self._base_offset = base_offset

    def check(self, position: int, header: BatchHeader) -> None:
        """Check the entries up to this batch. Raises IndexProblemError."""
        while (entry := self._entries.peek()) is not None:
            offset, at = self._base_offset + (entry[0] >> 32), entry[0] & _POSITION_MASK
            if at > position:
                return
            if at < position:
                raise self._entries.problem(f"places offset {offset} at byte {at}, where no batch starts")
            if offset != header.base_offset:
                raise self._entries.problem(
                    f"places offset {offset} at byte {at}, where offset {header.base_offset} starts"
                )
            self._entries.take()

    def finish(self, size_bytes: int, end_offset: int) -> None:
        """Check at the end of the log that no entries are left. Raises IndexProblemError."""
        entry = self._entries.peek()
        if entry is not None:
            raise self._entries.problem(f"points to byte {entry[0] & _POSITION_MASK}, but the log ends at {size_bytes}")
        self._entries.finish(size_bytes)


class TimeIndexCheck:
    """Each entry must hold a batch and its largest timestamp, which no earlier batch of the segment may exceed."""

    def __init__(self, path: Path) -> None:
        self._entries = _Entries(path, _TIME_WIDTH)
        self._latest = -1

    def check(self, position: int, header: BatchHeader) -> None:
        """Check the entries up to this batch. Raises IndexProblemError."""
        while (entry := self._entries.peek()) is not None:
            timestamp, offset = entry
            if offset > header.base_offset:
                break
            if offset < header.base_offset:
                raise self._entries.problem(f"refers to offset {offset}, where no batch starts")
            if timestamp != header.max_timestamp:
                raise self._entries.problem(
                    f"has timestamp {timestamp} for offset {offset}, but its timestamp is {header.max_timestamp}"
                )
            if self._latest > timestamp:
                raise self._entries.problem(f"claims that no message before offset {offset} is later than {timestamp}")
            self._entries.take()
        self._latest = max(self._latest, header.max_timestamp)

    def finish(self, size_bytes: int, end_offset: int) -> None:
        """Check at the end of the log that no entries are left. Raises IndexProblemError."""
        entry = self._entries.peek()
        if entry is not None:
            raise self._entries.problem(f"refers to offset {entry[1]}, but the segment ends at {end_offset}")
        self._entries.finish(size_bytes)
