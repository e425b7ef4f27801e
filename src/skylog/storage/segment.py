"""One segment of a log: a file of whole batches, with its two indexes.

Files: `<20-digit base offset>.log`, `.index` and `.timeindex`. The segment is active (appended to, its file always
open) or closed (its file opened when somebody reads). Batches in the file have ascending offsets, from `base_offset`
on. A crash can tear the end of the active segment only; see `recovery`.

What this process appended it has checked before. What it found in the file is checked before it is first read (see
`soundness`), so that a damaged batch is never served, while those before and after it still are.
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
from skylog.storage.empty_runs import EmptyRuns
from skylog.storage.files import Buffer, FilePool, FileSlice, LogFile, sync_file
from skylog.storage.index import ITEM_BYTES, OffsetIndex, TimeIndex
from skylog.storage.scan import scan, scan_past_damage
from skylog.storage.soundness import PART_BYTES, Damage, PartCheck, Soundness, UncheckedError

logger = logging.getLogger(__name__)

SCAN_BYTES: Final = 8192
REMOVED_SUFFIX: Final = ".deleted"
_REMEMBERED_ENDS: Final = 64
_ENTRY_DUE: Final = 1 << 62
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
        "_ends",
        "_file",
        "_indexed_timestamp",
        "_pool",
        "base_offset",
        "empty_runs",
        "end_offset",
        "index_bytes",
        "indexes_checked",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "path",
        "size_bytes",
        "soundness",
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
        self._appended_from_offset = base_offset  # batches from this offset on came through this process
        self.soundness = Soundness()  # of the older ones
        self.empty_runs = EmptyRuns()

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
        self.soundness.found_bytes = self.size_bytes
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
        if self._file is not None:
            self._file = None  # of an active segment, and not in the pool
        else:
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
        self.soundness.forget()
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

    def has_intact_indexes(self) -> bool:
        """Whether the indexes may be used: they were made here, or are as they were sealed. Reads them once."""
        if not self.indexes_checked:
            try:
                self.indexes_checked = self.offset_index.items.was_intact() and self.time_index.items.was_intact()
            except OSError as error:
                logger.warning("%s: an index cannot be read: %s", self.path, error)
        return self.indexes_checked

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
        """Make both indexes again from the sound batches of the log, all of which are then checked."""
        self.forget_after(self.base_offset, 0)
        self.soundness.forget()
        end, due_offset = 0, self.base_offset
        for position, header in scan_past_damage(self.file, 0, self.base_offset, self.end_offset):
            if position != end:
                self._note_damage(end, position, due_offset, header.base_offset)
            self.note(position, header.size_bytes, header.base_offset, header.max_timestamp, index_interval_bytes)
            end, due_offset = position + header.size_bytes, header.end_offset
        if end != self.size_bytes:
            self._note_damage(end, self.size_bytes, due_offset, self.end_offset or due_offset)
        self.soundness.trust(0, self.size_bytes)
        self.indexes_checked = True
        if self._file is None:
            with contextlib.suppress(OSError):  # they are in memory, and made once more when the log is next opened
                self.seal()

    def _note_damage(self, position: int, end: int, due_offset: int, next_offset: int) -> None:
        self.soundness.damages.append(Damage(position, end, due_offset, next_offset, "no sound batch"))

    def rebuilt(self, index_interval_bytes: int) -> Segment:
        """This segment with indexes made anew. May run in another thread, if the segment is closed.

        The pool is the new segment's own; `share` gives it the log's.
        """
        segment = Segment(self.path.parent, self.base_offset, FilePool(self._pool.open_file))
        segment.end_offset = self.end_offset
        segment.rebuild_indexes(index_interval_bytes)
        segment.take_as_found(self.base_offset if self.end_offset is None else self.end_offset)
        return segment

    def share(self, pool: FilePool) -> None:
        """Use the files of `pool` from now on."""
        self._pool = pool

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
        damaged, and UncheckedError where it has not been checked.
        """
        if offset < self._appended_from_offset:
            start, end = self._find_found(offset, max_bytes)
        else:
            start, end = self.position_of(offset), self.size_bytes
        if end - start > max_bytes:
            # Entries of the index lie at batch starts, so the last one in reach is a good place to stop: no batch
            # is cut, and the next read of this reader begins exactly at an entry.
            boundary = self.offset_index.boundary(start + max_bytes)
            end = boundary if boundary > start else start + self._whole_batches(start, end, max_bytes, at_least_one)
        return FileSlice(self.file, start, end - start)

    def _find_found(self, offset: int, max_bytes: int) -> tuple[int, int]:
        """Where the batch that holds `offset` starts, among those that were found, and up to where all are sound."""
        entry_offset, position = self.offset_index.lookup(offset)
        soundness = self.soundness
        checked_to = soundness.checked_to(position)
        if checked_to <= position < soundness.found_bytes:
            raise UncheckedError(self._part(entry_offset, position, max_bytes))
        while position < checked_to:
            damage = soundness.damage_at(position)
            if damage is not None:
                if offset < damage.next_offset:
                    raise damage.to_error()
                position, entry_offset = damage.end, damage.next_offset
                continue
            if entry_offset != offset:
                header = BatchHeader.read(self.file.read(position, HEADER_BYTES))
                if header.last_offset < offset:
                    position, entry_offset = position + header.size_bytes, header.end_offset
                    continue
            end = soundness.sound_to(position)
            return position, self.size_bytes if end == soundness.found_bytes else end
        if checked_to < soundness.found_bytes:
            raise UncheckedError(self._part(*self.offset_index.lookup_position(checked_to), max_bytes))
        return self.size_bytes, self.size_bytes

    def _part(self, entry_offset: int, position: int, max_bytes: int) -> PartCheck:
        """The check of the batches from an entry of the index on."""
        found_bytes = self.soundness.found_bytes
        stop, end_offset = found_bytes, self._appended_from_offset
        following = self.offset_index.first_from(position + max(max_bytes, PART_BYTES))
        if following is not None and following[1] < found_bytes:
            end_offset, stop = following
        entries = [(entry_offset, position), *self.offset_index.between(position + 1, stop)]
        return PartCheck(self.soundness, self.file, entries, stop, end_offset)

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

    def _whole_batches(self, start: int, end: int, max_bytes: int, at_least_one: bool) -> int:
        """Length of the whole batches up to `end` that fit into `max_bytes`; of the first one if it must be."""
        total = 0
        for position, header in self.headers(start):
            reach = position + header.size_bytes - start
            if reach > max_bytes and (total or not at_least_one):
                break
            total = reach
            if total >= min(max_bytes, end - start):
                break  # what follows may be damaged
        return total
