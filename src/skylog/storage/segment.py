"""One segment of a log: a file of whole batches, with its indexes.

Files: `<20-digit base offset>.log`, `.index`, `.timeindex`, and `.txnindex` if it has aborted transactions. The segment
is active (appended to, its file always open) or closed (its file opened on demand). Batches in the file have ascending
offsets, starting at `base_offset`. A crash can damage only the end of the active segment; see `recovery`.

Batches that this process appends are checked before. Batches that were already in the file are checked before they
are first read (see `soundness`). So a damaged batch is never served, while those before and after it still are. A scrub
may find that a batch was damaged after this process appended it: all batches so far then count as found (`distrust`).
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import Final

from skylog.durable_files import sync_file
from skylog.records import HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchHeader, InvalidBatchError
from skylog.records.batch import CONTROL
from skylog.storage.aborted_index import AbortedIndex, Knowledge
from skylog.storage.empty_runs import EmptyRuns
from skylog.storage.files import Buffer, FilePool, FileSlice, LogFile
from skylog.storage.index import ITEM_BYTES, OffsetIndex, TimeIndex
from skylog.storage.scan import SCAN_BYTES, headers, scan, scan_past_damage
from skylog.storage.soundness import PART_BYTES, Damage, EpochOf, PartCheck, Soundness, UncheckedError

logger = logging.getLogger(__name__)

INDEX_SUFFIXES: Final = (".index", ".timeindex", ".txnindex")
REMOVED_SUFFIX: Final = ".deleted"
_REMEMBERED_ENDS: Final = 64
_ENTRY_DUE: Final = 1 << 62
_OFFSET_LENGTH_DELTA = Struct(">qi11xi")


def segment_path(directory: Path, base_offset: int) -> Path:
    return directory / f"{base_offset:020d}.log"


def segment_bases(directory: Path) -> list[int]:
    """Return the base offsets of the segments in `directory`, ascending."""
    return sorted(int(name[:-4]) for name in os.listdir(directory) if name.endswith(".log") and name[:-4].isdecimal())


class Segment:
    """The batches from `base_offset` up to the next segment. Used only by its log, from one thread.

    `end_offset` is an upper bound for the end of the batches in the file, None while unknown.
    """

    __slots__ = (
        "_appended_from_offset",
        "_bytes_since_entry",
        "_ends",
        "_file",
        "_indexed_timestamp",
        "_pool",
        "aborted",
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
        self.aborted = AbortedIndex(path.with_suffix(".txnindex"), pool.open_file)
        if not create:
            self._load_aborted()
        self.indexes_checked = create
        self._note_index_size()
        self._bytes_since_entry = 0
        # Offset and position of recent ends of the segment: readers that have caught up continue there.
        self._ends: dict[int, int] = {}
        self._appended_from_offset = base_offset  # batches from this offset on were appended by this process
        self.soundness = Soundness()  # of the batches before that offset
        self.empty_runs = EmptyRuns()

    def _index_paths(self) -> list[Path]:
        return [self.path.with_suffix(suffix) for suffix in INDEX_SUFFIXES]

    def _load_aborted(self) -> None:
        """Load the aborted transactions, unless the index was sealed without any."""
        items = self.offset_index.items
        if items.is_flagged or items.sealed_size_bytes is None:
            self.aborted.load(is_expected=items.is_flagged)

    @property
    def file(self) -> LogFile:
        return self._file or self._pool.get(self.path)

    def newest_ms(self) -> int:
        """Return the largest timestamp of the records, or the file's modification time if they have none."""
        return self.max_timestamp if self.max_timestamp >= 0 else int(self.path.stat().st_mtime * 1000)

    # -- life cycle

    def take_as_found(self, end_offset: int) -> None:
        """Set the end of the segment when its log has been opened. All its batches so far are of earlier processes."""
        self.end_offset = self._appended_from_offset = end_offset
        self.soundness.found_bytes = self.size_bytes
        if self.size_bytes:
            # The first batch that this process appends gets an index entry, so that the search for one of its own
            # batches never starts among unchecked ones.
            self._bytes_since_entry = _ENTRY_DUE

    def distrust(self, end_offset: int) -> None:
        """Treat the batches appended so far, up to `end_offset`, like found ones, because one of them is damaged."""
        soundness = self.soundness
        soundness.trust(soundness.found_bytes, self.size_bytes)
        soundness.found_bytes = self.size_bytes
        self._appended_from_offset = end_offset

    def activate(self) -> None:
        """Make this the active segment."""
        if self._file is None:
            self._file = self._pool.open_file(self.path, False)
            self._pool.discard(self.path)

    def close(self) -> None:
        """Make the segment read-only."""
        if self._file is not None:
            self._pool.put(self._file)
            self._file = None

    def seal(self) -> None:
        """Write and seal the indexes. Raises OSError; the next opening of the log then rebuilds them."""
        if self.has_sealed_indexes():
            return
        if self._file is not None:
            self._file.trim()
        if self.max_timestamp >= 0:
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
        has_aborted = len(self.aborted) > 0
        if has_aborted:
            self.aborted.write(self.size_bytes)
        is_flagged = has_aborted or self.aborted.knowledge is Knowledge.LOST
        self.offset_index.items.seal(self.size_bytes, is_flagged=is_flagged)
        self.time_index.items.seal(self.size_bytes)

    def sync_indexes(self) -> None:
        """Make the index files durable. May run in another thread."""
        for path in self._index_paths():
            sync_file(path)

    def release(self) -> None:
        """Close the file. Readers that hold a slice can still read it."""
        if self._file is not None:
            self._file = None  # the file of an active segment is not in the pool
        else:
            self._pool.discard(self.path)

    def remove(self) -> list[Path]:
        """Rename the segment's files. Return the new paths, which the caller unlinks. Raises OSError."""
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
        """Append one checked batch. If it raises OSError, nothing has changed."""
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
        """Append several checked batches, `length` bytes in total, with one write.

        `rows` has length, base offset and largest timestamp of each. If it raises OSError, nothing has changed.
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
        """Update the largest timestamp with the batch at `position`, and add index entries if they are due."""
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
        """Truncate the file to `size_bytes`, the position at which the batch at `end_offset` would start.

        The results of checks that are running are not used: they may be about batches that are gone.
        """
        self.activate()
        if self.aborted:
            self.aborted.remove()  # its seal would match, but not its entries
            self.aborted.truncate_to(end_offset)
        self.file.truncate(size_bytes)
        self.size_bytes = size_bytes
        self.soundness = Soundness(min(self.soundness.found_bytes, size_bytes))
        self.empty_runs = EmptyRuns()
        self._appended_from_offset = min(self._appended_from_offset, end_offset)
        newest = self.max_timestamp, self.max_timestamp_offset
        self.forget_after(end_offset, size_bytes, newest if newest[1] < end_offset else None)

    # -- indexes

    def _note_index_size(self) -> None:
        self.index_bytes = max(len(self.offset_index.items), len(self.time_index.items)) * ITEM_BYTES

    def has_sealed_indexes(self) -> bool:
        """Whether both indexes were sealed for a log file of this size. Does not read their entries."""
        return all(index.items.sealed_size_bytes == self.size_bytes for index in (self.offset_index, self.time_index))

    def has_plausible_indexes(self) -> bool:
        """Whether unsealed indexes, as a crash leaves them, can be used."""
        return self.offset_index.is_plausible(self.size_bytes) and self.time_index.is_plausible(self.base_offset)

    def has_intact_indexes(self) -> bool:
        """Whether the indexes can be used: this process built them, or their checksums match. Reads them once."""
        if not self.indexes_checked:
            try:
                self.indexes_checked = self.offset_index.items.was_intact() and self.time_index.items.was_intact()
            except OSError as error:
                logger.warning("%s: an index cannot be read: %s", self.path, error)
        return self.indexes_checked

    def forget_after(self, end_offset: int, size_bytes: int, newest: tuple[int, int] | None = None) -> None:
        """Truncate the indexes to the batches before `end_offset`, which end at `size_bytes`.

        `newest` is the largest timestamp of those batches and its offset, if that is known.
        """
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
        if newest is not None:
            self.max_timestamp, self.max_timestamp_offset = newest
            return
        # Batches after the last entry of the time index may have larger timestamps.
        entry_offset, start = self.offset_index.lookup(max(self.max_timestamp_offset, self.base_offset))
        for position, header in scan_past_damage(self.file, start, entry_offset):
            if position >= size_bytes:
                break
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.base_offset

    def rebuild_indexes(self, index_interval_bytes: int) -> None:
        """Rebuild the offset and time index from the sound batches of the file. This checks all batches."""
        self.forget_after(self.base_offset, 0)
        control = 0
        self.soundness.forget()
        end, due_offset = 0, self.base_offset
        for position, header in scan_past_damage(self.file, 0, self.base_offset, self.end_offset):
            if position != end:
                self._note_damage(end, position, due_offset, header.base_offset)
            self.note(position, header.size_bytes, header.base_offset, header.max_timestamp, index_interval_bytes)
            control |= header.attributes & CONTROL
            end, due_offset = position + header.size_bytes, header.end_offset
        if end != self.size_bytes:
            self._note_damage(end, self.size_bytes, due_offset, self.end_offset or due_offset)
        if control and self.aborted.knowledge is Knowledge.ASSUMED:
            self.aborted.knowledge = Knowledge.LOST
        self.soundness.trust(0, self.size_bytes)
        self.indexes_checked = True
        if self._file is None:
            with contextlib.suppress(OSError):  # they are in memory, and the next opening of the log rebuilds them
                self.seal()

    def _note_damage(self, position: int, end: int, due_offset: int, next_offset: int) -> None:
        self.soundness.damages.append(Damage(position, end, due_offset, next_offset, "no sound batch"))

    def rebuilt(self, index_interval_bytes: int) -> Segment:
        """Return a copy of this segment with rebuilt indexes. May run in another thread if the segment is closed.

        The copy has a file pool of its own until `share` gives it the log's.
        """
        segment = Segment(self.path.parent, self.base_offset, FilePool(self._pool.open_file))
        segment.end_offset = self.end_offset
        segment.aborted = self.aborted
        segment.rebuild_indexes(index_interval_bytes)
        segment.take_as_found(self.base_offset if self.end_offset is None else self.end_offset)
        return segment

    def share(self, pool: FilePool) -> None:
        """Use the files of `pool` from now on."""
        self._pool = pool

    # -- reading

    def position_of(self, offset: int) -> int:
        """Return the position of the batch that contains `offset`, or of the next one; the file's end if none."""
        found = self._ends.get(offset)
        if found is not None:
            return found
        entry_offset, position = self.offset_index.lookup(offset)
        if entry_offset == offset:
            return position
        if self.soundness.damages:
            return self._position_past_damage(offset, position)
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

    def _position_past_damage(self, offset: int, position: int) -> int:
        """Search like `position_of` from `position` on, without the headers in damaged ranges."""
        while position <= self.size_bytes - HEADER_BYTES:
            damage = self.soundness.damage_at(position)
            if damage is not None:
                if damage.next_offset > offset:
                    return position
                position = damage.end
                continue
            header = BatchHeader.read(self.file.read(position, HEADER_BYTES))
            if header.last_offset >= offset or header.size_bytes < HEADER_BYTES:
                return position if header.last_offset >= offset else self.size_bytes
            position += header.size_bytes
        return self.size_bytes

    def read(self, offset: int, max_bytes: int, at_least_one: bool = True) -> FileSlice:
        """Return whole batches from the one that contains `offset` on, up to `max_bytes`; an empty slice if none.

        `at_least_one` includes the first batch whatever its size. Raises InvalidBatchError if the first batch is
        damaged, and UncheckedError if it has not been checked.
        """
        if offset < self._appended_from_offset:
            start, end = self._find_found(offset, max_bytes)
        else:
            start, end = self.position_of(offset), self.size_bytes
        if end - start > max_bytes:
            # Index entries are batch starts. So the slice ends at the last entry in reach: no batch is cut, and the
            # reader's next read starts exactly at an entry.
            boundary = self.offset_index.boundary(start + max_bytes)
            end = boundary if boundary > start else start + self._whole_batches(start, end, max_bytes, at_least_one)
        return FileSlice(self.file, start, end - start)

    def _find_found(self, offset: int, max_bytes: int) -> tuple[int, int]:
        """Like `position_of`, for batches of earlier processes. Also return the end of the sound batches from there."""
        entry_offset, position = self.offset_index.lookup(offset)
        soundness = self.soundness
        checked_to = soundness.checked_to(position)
        if checked_to <= position < soundness.found_bytes:
            raise UncheckedError(self._unchecked_part(entry_offset, position, max_bytes))
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
            raise UncheckedError(self._unchecked_part(*self.offset_index.lookup_position(checked_to), max_bytes))
        return self.size_bytes, self.size_bytes

    def _unchecked_part(self, entry_offset: int, position: int, max_bytes: int) -> PartCheck:
        """Return the check of the batches that start at an index entry, up to those that this process appended."""
        end = self._appended_from_offset, self.soundness.found_bytes
        return self.part((entry_offset, position), end, max(max_bytes, PART_BYTES))

    def part(
        self, entry: tuple[int, int], end: tuple[int, int], max_bytes: int, epoch_of: EpochOf | None = None
    ) -> PartCheck:
        """Return a check of the batches from an index entry up to `end`, or the first entry after `max_bytes`.

        `entry` and `end` are offsets with their positions.
        """
        following = self.offset_index.first_from(entry[1] + max_bytes)
        if following is not None and following[1] < end[1]:
            end = following
        entries = [entry, *self.offset_index.between(entry[1] + 1, end[1])]
        return PartCheck(self.soundness, self.file, entries, end[1], end[0], epoch_of)

    def end_of_slice(self, found: FileSlice) -> int:
        """Return the offset after the last batch of a slice of this segment."""
        end = found.position + found.length
        _, entry_position = self.offset_index.lookup_position(end - 1)
        for position, header in self.headers(max(entry_position, found.position)):
            if position + header.size_bytes >= end:
                return header.end_offset
        raise InvalidBatchError(f"{self.path} ends before byte {end}", corrupt=True)

    def remember_end(self, end_offset: int) -> None:
        """Remember the current end as the position of `end_offset`, where a reader that has caught up continues."""
        if end_offset not in self._ends:
            if len(self._ends) >= _REMEMBERED_ENDS:
                del self._ends[next(iter(self._ends))]
            self._ends[end_offset] = self.size_bytes

    def headers(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yield position and header of each batch from `position` on. Reads headers, not records."""
        return headers(self.file, position, self.size_bytes)

    def batches(self, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yield position and header of each batch from an index entry at or before `offset` on.

        Batches of earlier processes are checked.
        """
        entry_offset, position = self.offset_index.lookup(offset)
        if entry_offset >= self._appended_from_offset:
            return self.headers(position)
        return scan(self.file, position, entry_offset, self.end_offset, SCAN_BYTES)

    def _whole_batches(self, start: int, end: int, max_bytes: int, at_least_one: bool) -> int:
        """Return the length of the whole batches up to `end` that fit into `max_bytes`, at least of one if required."""
        total = 0
        for position, header in self.headers(start):
            reach = position + header.size_bytes - start
            if reach > max_bytes and (total or not at_least_one):
                break
            total = reach
            if total >= min(max_bytes, end - start):
                break  # the next batch may be damaged
        return total
