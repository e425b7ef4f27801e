"""One segment of a log: a file of whole batches, with its two indexes.

Files: `<20-digit base offset>.log`, `.index` and `.timeindex`. The segment is active (appended to, its file always
open) or closed (its file opened when somebody reads). Batches in the file have ascending offsets, from `base_offset`
on. A crash can tear the end of the active segment only; see `recovery`.

What this process appended it has checked before. What it found in the file is checked when it is first read, so that
a damaged batch is never served, while those before and after it still are.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import Final

from skylog.records import HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchHeader, InvalidBatchError, check_batch
from skylog.records.batch import MAGIC
from skylog.storage.files import Buffer, FilePool, FileSlice, LogFile, sync_file
from skylog.storage.index import ITEM_BYTES, OffsetIndex, TimeIndex
from skylog.storage.scan import CHUNK_BYTES, TornLogError, find_sound, scan, scan_past_damage

logger = logging.getLogger(__name__)

SCAN_BYTES: Final = 8192
REMOVED_SUFFIX: Final = ".deleted"
_REMEMBERED_ENDS: Final = 64
_ENTRY_DUE: Final = 1 << 62
_NEVER: Final = 1 << 62
_OFFSET_LENGTH_DELTA = Struct(">qi11xi")


def segment_path(directory: Path, base_offset: int) -> Path:
    return directory / f"{base_offset:020d}.log"


def segment_bases(directory: Path) -> list[int]:
    """The base offsets of the segments in `directory`, ascending."""
    return sorted(int(name[:-4]) for name in os.listdir(directory) if name.endswith(".log") and name[:-4].isdecimal())


class Segment:
    """The batches from `base_offset` up to the next segment's. Used by its log alone, from one thread.

    `end_offset` is where the batches in the file end at the latest, as far as the log knows.
    """

    __slots__ = (
        "_appended_from_offset",
        "_bytes_since_entry",
        "_checked_from",
        "_checked_to",
        "_damaged",
        "_ends",
        "_file",
        "_indexed_timestamp",
        "_pool",
        "base_offset",
        "end_offset",
        "index_bytes",
        "indexes_checked",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "path",
        "size_bytes",
        "time_index",
    )

    def __init__(self, directory: Path, base_offset: int, pool: FilePool, *, create: bool = False) -> None:
        self.base_offset = base_offset
        self.end_offset: int | None = None
        self.path = path = segment_path(directory, base_offset)
        self._pool = pool
        self._file: LogFile | None = None
        if create:
            for stale in self._index_paths():
                stale.unlink(missing_ok=True)
            self._file = pool.open_file(path, True)
        self.size_bytes = path.stat().st_size
        self.offset_index = OffsetIndex(path.with_suffix(".index"), base_offset, pool.open_file)
        self.time_index = TimeIndex(path.with_suffix(".timeindex"), pool.open_file)
        self.max_timestamp, self.max_timestamp_offset = self.time_index.last
        self._indexed_timestamp = self.max_timestamp
        self.indexes_checked = create
        self._note_index_size()
        self._bytes_since_entry = 0
        # Offset and position of recent ends of the segment, where readers that have caught up will ask next.
        self._ends: dict[int, int] = {}
        # Batches from this offset on came through this process. Of the older ones, those between two positions have
        # been checked, and the others are at each read. Damage is never taken into that range.
        self._appended_from_offset = base_offset
        self._checked_from = self._checked_to = 0
        self._damaged = False

    def _index_paths(self) -> tuple[Path, Path]:
        return self.path.with_suffix(".index"), self.path.with_suffix(".timeindex")

    @property
    def file(self) -> LogFile:
        return self._file or self._pool.get(self.path)

    def newest_ms(self) -> int:
        """The largest timestamp of its records; where they have none, when the file was last written."""
        return self.max_timestamp if self.max_timestamp >= 0 else int(self.path.stat().st_mtime * 1000)

    # -- life cycle

    def take_as_found(self, end_offset: int) -> None:
        """Tell the segment where it ends, now that its log is open: all it holds so far is other processes' work."""
        self.end_offset = self._appended_from_offset = end_offset
        if self.size_bytes:
            # The first batch that this process appends gets an entry of the index, so that no search for one of its
            # own begins in what it has not checked.
            self._bytes_since_entry = _ENTRY_DUE

    def activate(self) -> None:
        """Make this the segment that is appended to."""
        if self._file is None:
            self._file = self._pool.open_file(self.path, False)
            self._pool.discard(self.path)

    def close(self) -> None:
        """Let the segment only be read from now on."""
        if self._file is not None:
            self._pool.put(self._file)
            self._file = None

    def seal(self) -> None:
        """Write the indexes out whole. Raises OSError; they are then made again when the log is next opened."""
        if self.has_sealed_indexes():
            return
        if self._file is not None:
            self._file.trim()
        if self.max_timestamp >= 0:
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
        self.offset_index.items.seal(self.size_bytes)
        self.time_index.items.seal(self.size_bytes)

    def sync_indexes(self) -> None:
        """Make the index files durable. May run in another thread."""
        for path in self._index_paths():
            sync_file(path)

    def release(self) -> None:
        """Let the file go. Readers that hold a slice still read on."""
        self._file = None
        self._pool.discard(self.path)

    def remove(self) -> list[Path]:
        """Take the segment's files out of the log; the paths that are to be unlinked. Raises OSError."""
        removed = []
        for path in (self.path, *self._index_paths()):
            aside = path.with_name(path.name + REMOVED_SUFFIX)
            with contextlib.suppress(FileNotFoundError):
                os.rename(path, aside)
                removed.append(aside)
        self.release()
        return removed

    # -- writing

    def append(self, batch: Buffer, base_offset: int, max_timestamp: int, index_interval_bytes: int) -> None:
        """Add one checked batch at the end. Raises OSError, and then has changed nothing."""
        assert self._file is not None, "append to a closed segment"
        position, length = self.size_bytes, len(batch)
        self._file.append(batch)
        self.size_bytes = position + length
        if max_timestamp > self.max_timestamp or self._bytes_since_entry > index_interval_bytes:
            self.note(position, length, base_offset, max_timestamp, index_interval_bytes)
        else:
            self._bytes_since_entry += length

    def append_all(
        self, batches: Sequence[Buffer], length: int, rows: Sequence[tuple[int, int, int]], index_interval_bytes: int
    ) -> None:
        """Add several checked batches, `length` bytes together, with one write.

        `rows` has length, base offset and largest timestamp of each. Raises OSError, and then has changed nothing.
        """
        assert self._file is not None, "append to a closed segment"
        position = self.size_bytes
        self._file.append_all(batches, length)
        self.size_bytes = position + length
        for batch_bytes, base_offset, max_timestamp in rows:
            if max_timestamp > self.max_timestamp or self._bytes_since_entry > index_interval_bytes:
                self.note(position, batch_bytes, base_offset, max_timestamp, index_interval_bytes)
            else:
                self._bytes_since_entry += batch_bytes
            position += batch_bytes

    def note(self, position: int, length: int, base_offset: int, max_timestamp: int, index_interval_bytes: int) -> None:
        """Take a batch that lies at `position` into the indexes, where an entry is due."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = base_offset
        if self._bytes_since_entry > index_interval_bytes:
            self.offset_index.append(base_offset, position)
            if self.max_timestamp > self._indexed_timestamp:
                self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
                self._indexed_timestamp = self.max_timestamp
            self._note_index_size()
            self._bytes_since_entry = 0
        self._bytes_since_entry += length

    def truncate(self, end_offset: int, size_bytes: int) -> None:
        """Cut the file at `size_bytes`, where the batch of `end_offset` would start."""
        self.activate()
        self.file.truncate(size_bytes)
        self.size_bytes = size_bytes
        self._checked_from = self._checked_to = 0
        self.forget_after(end_offset, size_bytes)

    # -- indexes

    def _note_index_size(self) -> None:
        self.index_bytes = max(len(self.offset_index.items), len(self.time_index.items)) * ITEM_BYTES

    def has_sealed_indexes(self) -> bool:
        """Whether both indexes were sealed for a log file of this size. Does not read them."""
        return all(index.items.sealed_size_bytes == self.size_bytes for index in (self.offset_index, self.time_index))

    def has_plausible_indexes(self) -> bool:
        """Whether what a crash has left of the indexes can be used."""
        return self.offset_index.is_plausible(self.size_bytes) and self.time_index.is_plausible(self.base_offset)

    def check_indexes(self, index_interval_bytes: int) -> None:
        """Compare the indexes with their seals, before they are first used, and make them again if they differ."""
        if not (self.offset_index.items.was_intact() and self.time_index.items.was_intact()):
            logger.warning("%s: an index is damaged and is made again", self.path)
            self.rebuild_indexes(index_interval_bytes)
        self.indexes_checked = True

    def forget_after(self, end_offset: int, size_bytes: int) -> None:
        """Let the indexes end with the batch before `end_offset`, which ends at `size_bytes`."""
        self._ends.clear()
        if size_bytes:
            self.offset_index.truncate_to(end_offset, size_bytes)
            self.time_index.truncate_to(end_offset)
        else:
            self.offset_index.items.truncate(0)
            self.time_index.items.truncate(0)
        self._note_index_size()
        self._bytes_since_entry = _ENTRY_DUE if size_bytes else 0
        self.max_timestamp, self.max_timestamp_offset = self.time_index.last
        self._indexed_timestamp = self.max_timestamp
        if not size_bytes:
            return
        # Whatever came after the last entry of the time index may be later than it.
        entry_offset, start = self.offset_index.lookup(max(self.max_timestamp_offset, self.base_offset))
        for position, header in scan_past_damage(self.file, start, entry_offset):
            if position >= size_bytes:
                break
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.base_offset

    def rebuild_indexes(self, index_interval_bytes: int) -> None:
        """Make both indexes again from the sound batches of the log."""
        self.forget_after(self.base_offset, 0)
        end = 0
        for position, header in scan_past_damage(self.file, 0, self.base_offset, self.end_offset):
            self._damaged |= position != end
            end = position + header.size_bytes
            self.note(position, header.size_bytes, header.base_offset, header.max_timestamp, index_interval_bytes)
        self._damaged |= end != self.size_bytes
        if self._damaged:
            self._appended_from_offset = _NEVER  # the entry that parted this process's batches from the damage is gone
        self.indexes_checked = True
        if self._file is None:
            with contextlib.suppress(OSError):  # they are in memory, and made once more when the log is next opened
                self.seal()

    # -- reading

    def position_of(self, offset: int) -> int:
        """Where the batch that holds `offset` starts, or the next one after it; the end where there is none."""
        found = self._ends.get(offset)
        if found is not None:
            return found
        entry_offset, position = self.offset_index.lookup(offset)
        if entry_offset == offset:
            return position
        size_bytes = self.size_bytes
        last_header = size_bytes - HEADER_BYTES
        while position <= last_header:
            chunk = self.file.read(position, SCAN_BYTES)
            at, last = 0, len(chunk) - HEADER_BYTES
            while at <= last:
                base_offset, length, last_offset_delta = _OFFSET_LENGTH_DELTA.unpack_from(chunk, at)
                if base_offset + last_offset_delta >= offset:
                    return position + at
                if length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
                    return size_bytes
                at += length + LOG_OVERHEAD_BYTES
            position += at
        return size_bytes

    def read(self, offset: int, max_bytes: int, at_least_one: bool = True) -> FileSlice:
        """Whole batches from the one that holds `offset` on, up to `max_bytes`; empty where there are none.

        `at_least_one` includes the first batch whatever its size. Raises InvalidBatchError where the first batch is
        damaged.
        """
        start, end = self.position_of(offset), self.size_bytes
        is_older = offset < self._appended_from_offset
        if is_older and not self._checked_from <= start < self._checked_to:
            return self._read_unchecked(offset, max_bytes, at_least_one)
        if end - start > max_bytes:
            # Entries of the index lie at batch starts, so the last one in reach is a good place to stop: no batch
            # is cut, and the next read of this reader begins exactly at an entry.
            boundary = self.offset_index.boundary(start + max_bytes)
            end = boundary if boundary > start else start + self._whole_batches(start, max_bytes, at_least_one)
        if is_older and end > self._checked_to:
            return self._read_unchecked(offset, max_bytes, at_least_one)
        return FileSlice(self.file, start, end - start)

    def remember_end(self, end_offset: int) -> None:
        """Note that `end_offset` will be at the present end: a reader that got everything will ask for it next."""
        if end_offset not in self._ends:
            if len(self._ends) >= _REMEMBERED_ENDS:
                del self._ends[next(iter(self._ends))]
            self._ends[end_offset] = self.size_bytes

    def headers(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch from the one at `position` on. Reads headers, not records."""
        file, size_bytes = self.file, self.size_bytes
        chunk, chunk_start = b"", position
        while position < size_bytes:
            at = position - chunk_start
            if at + HEADER_BYTES > len(chunk):
                chunk, chunk_start, at = file.read(position, SCAN_BYTES), position, 0
            if len(chunk) < HEADER_BYTES:
                raise InvalidBatchError(f"{self.path} ends inside a header at byte {position}", corrupt=True)
            header = BatchHeader.read(chunk, at)
            if header.magic != MAGIC or not HEADER_BYTES <= header.size_bytes <= size_bytes - position:
                raise InvalidBatchError(f"{self.path} has no batch at byte {position}", corrupt=True)
            yield position, header
            position += header.size_bytes

    def batches(self, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch from one at or before `offset` on, checked unless this process wrote it."""
        entry_offset, position = self.offset_index.lookup(offset)
        if entry_offset >= self._appended_from_offset:
            return self.headers(position)
        return scan(self.file, position, entry_offset, self.end_offset, SCAN_BYTES)

    def read_batch(self, position: int) -> bytes:
        """The batch at `position`, checked."""
        header = BatchHeader.read(self.file.read(position, HEADER_BYTES))
        batch = self.file.read(position, header.size_bytes)
        check_batch(batch)
        return batch

    def trust(self, start: int, end: int) -> None:
        """Take the batches between two positions as checked. Kept as one range, the latest where they don't touch."""
        if start <= self._checked_to and end >= self._checked_from:
            start, end = min(start, self._checked_from), max(end, self._checked_to)
        self._checked_from, self._checked_to = start, end

    def _whole_batches(self, start: int, max_bytes: int, at_least_one: bool) -> int:
        """Length of the whole batches from `start` that fit into `max_bytes`; of the first one if it must be."""
        total = 0
        for position, header in self.headers(start):
            reach = position + header.size_bytes - start
            if reach > max_bytes and (total or not at_least_one):
                break
            total = reach
        return total

    def _read_unchecked(self, offset: int, max_bytes: int, at_least_one: bool) -> FileSlice:
        """Like `read`, for batches that another process wrote: each is checked, damaged ones are stepped over.

        The search begins at an entry of the index, so its result does not hang on a header that may be wrong.
        """
        due_offset, anchor = self.offset_index.lookup(offset)
        search_from, start, end = anchor, -1, -1
        chunk_bytes = min(max(max_bytes, 0) + SCAN_BYTES, CHUNK_BYTES)
        while start < 0:
            try:
                for position, header in scan(self.file, search_from, due_offset, self.end_offset, chunk_bytes):
                    if start < 0 and header.last_offset >= offset:
                        start = end = position
                    if start >= 0:
                        reach = position + header.size_bytes
                        if reach - start > max_bytes and (end > start or not at_least_one):
                            break
                        end = reach
                if start < 0:
                    start = end = self.size_bytes
            except TornLogError as torn:
                logger.error("%s: damaged at byte %d, offset %d: %s", self.path, torn.position, torn.due_offset, torn)
                self._damaged = True
                if start < 0:
                    search_from, due_offset = self._step_over(torn, offset)
        if not self._damaged:
            self.trust(anchor, end)
        return FileSlice(self.file, start, end - start)

    def _step_over(self, torn: TornLogError, offset: int) -> tuple[int, int]:
        """Where to go on behind damage that does not touch `offset`; raises `torn` where it does."""
        found = find_sound(self.file, torn.position + 1, torn.due_offset)
        if found is None or found[1].base_offset > offset:
            raise torn
        return found[0], found[1].base_offset
