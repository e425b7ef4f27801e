"""One segment of a log: a file of whole batches, with its two indexes.

Files: `<20-digit base offset>.log`, `.index` and `.timeindex`. The segment is active (appended to, its file always
open) or closed (its file opened when somebody reads). Batches in the file have ascending offsets, all at or above
`base_offset`. A crash can tear the end of the active segment only; see `recovery`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final

from skylog.records import HEADER_BYTES, BatchHeader, InvalidBatchError, check_batch
from skylog.storage.config import LogConfig
from skylog.storage.files import Buffer, FilePool, FileSlice, LogFile
from skylog.storage.index import OffsetIndex, TimeIndex

logger = logging.getLogger(__name__)

SCAN_BYTES: Final = 8192
_REMEMBERED_ENDS: Final = 64
_OFFSET_LENGTH = Struct(">qi")
_LAST_OFFSET_DELTA = Struct(">i")


def segment_path(directory: Path, base_offset: int) -> Path:
    return directory / f"{base_offset:020d}.log"


class Segment:
    """The batches from `base_offset` up to the next segment's. Used by its log alone, from one thread."""

    __slots__ = (
        "_appended_from",
        "_bytes_since_entry",
        "_checked_from",
        "_checked_to",
        "_ends",
        "_file",
        "_pool",
        "base_offset",
        "indexes_rebuilt",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "path",
        "size_bytes",
        "time_index",
    )

    def __init__(self, directory: Path, base_offset: int, pool: FilePool, *, create: bool = False) -> None:
        self.base_offset = base_offset
        self.path = segment_path(directory, base_offset)
        self._pool = pool
        self._file: LogFile | None = pool.open_file(self.path, True) if create else None
        self.size_bytes = self._file.size_bytes if self._file else self.path.stat().st_size
        self.offset_index = OffsetIndex(self.path.with_suffix(".index"), base_offset)
        self.time_index = TimeIndex(self.path.with_suffix(".timeindex"))
        self.max_timestamp, self.max_timestamp_offset = self.time_index.last
        self.indexes_rebuilt = False
        self._bytes_since_entry = 0
        # Offset and position of recent ends of the segment, where readers that have caught up will ask next.
        self._ends: dict[int, int] = {}
        # Batches from `_appended_from` on came through this process, which checked their CRC before the append. Older
        # ones are checked when they are first read; those between the other two positions have been.
        self._appended_from = self.size_bytes
        self._checked_from = self._checked_to = 0

    @property
    def file(self) -> LogFile:
        return self._file or self._pool.get(self.path)

    def has_indexes(self) -> bool:
        """Whether both index files are there and can belong to this log file."""
        if not self.size_bytes:
            return True
        suffixes = (".index", ".timeindex")
        return all(self.path.with_suffix(suffix).exists() for suffix in suffixes) and self.offset_index.is_sound(
            self.size_bytes
        )

    def newest_ms(self) -> int:
        """The largest timestamp of its records; where they have none, when the file was last written."""
        return self.max_timestamp if self.max_timestamp >= 0 else int(self.path.stat().st_mtime * 1000)

    def activate(self) -> None:
        """Make this the segment that is appended to."""
        if self._file is None:
            self._file = self._pool.open_file(self.path, False)

    def close(self) -> None:
        """Write the indexes out and let the file go: the segment is only read from now on."""
        if self.max_timestamp >= 0:
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
        self.offset_index.spill()
        self.time_index.spill()
        self._file = None

    def sync(self) -> None:
        """Make everything appended so far durable. May run in another thread."""
        self.file.sync()

    def sync_indexes(self) -> None:
        self.offset_index.sync()
        self.time_index.sync()

    def remove(self) -> list[Path]:
        """Forget the file; the paths that are to be unlinked. Readers that hold a slice still read on."""
        self._file = None
        self._pool.discard(self.path)
        return [self.path, self.path.with_suffix(".index"), self.path.with_suffix(".timeindex")]

    # -- writing

    def append(self, batch: Buffer, base_offset: int, max_timestamp: int, config: LogConfig) -> None:
        """Add one checked batch at the end. Raises OSError, and then has changed nothing."""
        assert self._file is not None, "append to a closed segment"
        position = self.size_bytes
        self._file.append(batch)
        self.size_bytes = position + len(batch)
        self.note(position, len(batch), base_offset, max_timestamp, config.index_interval_bytes)

    def note(self, position: int, length: int, base_offset: int, max_timestamp: int, index_interval_bytes: int) -> None:
        """Take a batch that lies at `position` into the indexes, where one is due."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = base_offset
        if self._bytes_since_entry > index_interval_bytes:
            self.offset_index.append(base_offset, position)
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
            self._bytes_since_entry = 0
        self._bytes_since_entry += length

    def truncate(self, end_offset: int, size_bytes: int) -> None:
        """Cut the file at `size_bytes`, where the batch of `end_offset` starts."""
        self.activate()
        self.file.truncate(size_bytes)
        self.size_bytes = size_bytes
        self._appended_from = min(self._appended_from, size_bytes)
        self._checked_from = self._checked_to = 0
        self.forget_after(end_offset, size_bytes)

    def forget_after(self, end_offset: int, size_bytes: int) -> None:
        """Let the indexes end with the batch before `end_offset`, which ends at `size_bytes`."""
        self._ends.clear()
        self._bytes_since_entry = 0
        self.offset_index.truncate_to(end_offset, size_bytes)
        self.time_index.truncate_to(end_offset)
        self.max_timestamp, self.max_timestamp_offset = self.time_index.last
        if not size_bytes:
            return
        for position, header in self.headers(self.offset_index.boundary(size_bytes)):
            if position >= size_bytes:
                break
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.base_offset

    def rebuild_indexes(self, index_interval_bytes: int) -> None:
        """Make both indexes again from the log."""
        self.forget_after(self.base_offset, 0)
        self.indexes_rebuilt = True
        try:
            for position, header in self.headers(0):
                self.note(position, header.size_bytes, header.base_offset, header.max_timestamp, index_interval_bytes)
        except InvalidBatchError as error:
            logger.error("%s: only indexed up to the damage: %s", self.path, error)
        self.offset_index.spill()
        self.time_index.spill()

    # -- reading

    def position_of(self, offset: int) -> int:
        """Where the batch that holds `offset` starts, or the next one after it; the end where there is none."""
        found = self._ends.get(offset)
        if found is not None:
            return found
        entry_offset, position = self.offset_index.lookup(offset)
        if entry_offset == offset:
            return position
        file, size_bytes = self.file, self.size_bytes
        chunk, chunk_start = b"", position
        while position < size_bytes:
            at = position - chunk_start
            if at + HEADER_BYTES > len(chunk):
                chunk, chunk_start, at = file.read(position, SCAN_BYTES), position, 0
            if len(chunk) - at < HEADER_BYTES:
                raise InvalidBatchError(f"{self.path} ends inside a header at byte {position}", corrupt=True)
            base_offset, length = _OFFSET_LENGTH.unpack_from(chunk, at)
            if base_offset + _LAST_OFFSET_DELTA.unpack_from(chunk, at + 23)[0] >= offset:
                return position
            if length <= 0:
                raise InvalidBatchError(f"{self.path} has a batch of length {length} at byte {position}", corrupt=True)
            position += length + 12
        return size_bytes

    def read(self, offset: int, max_bytes: int, at_least_one: bool = True) -> FileSlice:
        """Whole batches from the one that holds `offset` on, up to `max_bytes`; empty where there are none.

        `at_least_one` includes the first batch whatever its size.
        """
        start = self.position_of(offset)
        end = self.size_bytes
        if end - start > max_bytes:
            # Entries of the index lie at batch starts, so the last one in reach is a good place to stop: no batch
            # is cut, and the next read of this reader begins exactly at an entry.
            boundary = self.offset_index.boundary(start + max_bytes)
            end = boundary if boundary > start else start + self._whole_batches(start, max_bytes, at_least_one)
        if start < self._appended_from and start < end and not self._checked_from <= start < end <= self._checked_to:
            end = self._check(start, end)
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
        while size_bytes - position >= HEADER_BYTES:
            at = position - chunk_start
            if at + HEADER_BYTES > len(chunk):
                chunk, chunk_start, at = file.read(position, SCAN_BYTES), position, 0
            header = BatchHeader.read(chunk, at)
            if header.batch_length <= 0:
                raise InvalidBatchError(
                    f"{self.path} has a batch of length {header.batch_length} at byte {position}", corrupt=True
                )
            yield position, header
            position += header.size_bytes

    def read_batch(self, position: int) -> bytes:
        """The batch at `position`, checked."""
        header = BatchHeader.read(self.file.read(position, HEADER_BYTES))
        batch = self.file.read(position, header.size_bytes)
        check_batch(batch)
        return batch

    def _whole_batches(self, start: int, max_bytes: int, at_least_one: bool) -> int:
        """Length of the whole batches from `start` that fit into `max_bytes`; of the first one if it must be."""
        total = 0
        for position, header in self.headers(start):
            reach = position + header.size_bytes - start
            if reach > max_bytes and (total or not at_least_one):
                break
            total = reach
        return total

    def _check(self, start: int, end: int) -> int:
        """Check the CRCs of batches that come from before this process; the end of the sound ones.

        Raises InvalidBatchError where the first one is damaged: a damaged batch is never served.
        """
        data = memoryview(self.file.read(start, end - start))
        position = 0
        while position < len(data):
            try:
                header = check_batch(data, position)
            except InvalidBatchError as error:
                logger.error("%s: damaged batch at byte %d: %s", self.path, start + position, error)
                if position == 0:
                    raise
                break
            position += header.size_bytes
        self.trust(start, start + position)
        return start + position

    def trust(self, start: int, end: int) -> None:
        """Take the batches between two positions as checked. Kept as one range, the latest where they don't touch."""
        if start <= self._checked_to and end >= self._checked_from:
            start, end = min(start, self._checked_from), max(end, self._checked_to)
        self._checked_from, self._checked_to = start, end


def segment_bases(directory: Path) -> list[int]:
    """The base offsets of the segments in `directory`, ascending."""
    return sorted(int(name[:-4]) for name in os.listdir(directory) if name.endswith(".log") and name[:-4].isdecimal())
