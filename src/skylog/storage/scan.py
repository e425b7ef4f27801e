"""Scans log files. `scan` is for untrusted ones: every batch is checked before it is returned.

It is used after a crash, for batches of earlier processes, and to rebuild indexes. The CRC covers a batch except its
base offset and leader epoch. A wrong base offset is detected by the neighbouring batches: offsets ascend, and after a
gap (which compaction leaves) the next batch must be consistent with it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final

from skylog.records import HEADER_BYTES, BatchHeader, InvalidBatchError, check_batch
from skylog.records.batch import CODEC_MASK, CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, MAGIC, TRANSACTIONAL
from skylog.storage.files import LogFile

logger = logging.getLogger(__name__)

CHUNK_BYTES: Final = 4 * 1024 * 1024
SCAN_BYTES: Final = 8192
CRC_BUDGET_BYTES: Final = 256 * 1024 * 1024
MAX_OFFSETS: Final = 1 << 31  # the largest range that the offset index of one segment can represent
_MAGIC_AT: Final = 16
_ATTRIBUTES_MASK: Final = CODEC_MASK | LOG_APPEND_TIME | TRANSACTIONAL | CONTROL | DELETE_HORIZON


class TornLogError(InvalidBatchError):
    """The first position in a log file without a valid batch, the offset expected there, and the reason."""

    def __init__(self, position: int, due_offset: int, reason: str) -> None:
        super().__init__(reason, corrupt=True)
        self.position = position
        self.due_offset = due_offset


def headers(file: LogFile, position: int, size_bytes: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each batch from `position` up to `size_bytes`. Reads headers, not records.

    Raises InvalidBatchError where there is no header.
    """
    chunk, chunk_start = b"", position
    while position < size_bytes:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk, chunk_start, at = file.read(position, SCAN_BYTES), position, 0
        if len(chunk) < HEADER_BYTES:
            raise InvalidBatchError(f"{file.path} ends inside a header at byte {position}", corrupt=True)
        header = BatchHeader.read(chunk, at)
        if header.magic != MAGIC or not HEADER_BYTES <= header.size_bytes <= size_bytes - position:
            raise InvalidBatchError(f"{file.path} has no batch at byte {position}", corrupt=True)
        yield position, header
        position += header.size_bytes


def read_batch(file: LogFile, position: int) -> bytes:
    """Read and check the batch at `position`."""
    header = BatchHeader.read(file.read(position, HEADER_BYTES))
    batch = file.read(position, header.size_bytes)
    check_batch(batch)
    return batch


Chunk = tuple[memoryview, list[tuple[int, BatchHeader]]]
"""A part of a file, and the batches in it by position. It may end with a part of another batch."""


def scan(
    file: LogFile, position: int, due_offset: int, end_offset: int | None = None, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each valid batch from `position` on. Raises TornLogError at the first invalid byte.

    `due_offset` is the lowest offset allowed next. `end_offset` is an upper bound for the end of the last batch. If it
    is None, there may be no gap before the last batch, because nothing could confirm it.
    """
    for start, _, at, header in _scan(file, position, due_offset, end_offset, chunk_bytes):
        yield start + at, header


def scan_chunks(
    file: LogFile, position: int, due_offset: int, end_offset: int | None = None, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[Chunk]:
    """Like `scan`, but yield many batches at once, together with their bytes."""
    chunks = groupby(_scan(file, position, due_offset, end_offset, chunk_bytes), key=itemgetter(0))
    for _, batches in chunks:
        rows = list(batches)
        yield rows[0][1], [(at, header) for _, _, at, header in rows]


def _scan(
    file: LogFile, position: int, due_offset: int, end_offset: int | None, chunk_bytes: int
) -> Iterator[tuple[int, memoryview, int, BatchHeader]]:
    """Yield for each batch the position of its chunk, the chunk, the position in the chunk, and the header."""
    while position < file.size_bytes:
        chunk = _read_chunk(file, position, chunk_bytes)
        at = 0
        while at < len(chunk):
            try:
                header = check_batch(chunk, at)
            except InvalidBatchError as error:
                if at and position + len(chunk) < file.size_bytes:
                    break  # the batch may only be cut off by the end of the chunk: continue reading here
                raise TornLogError(position + at, due_offset, str(error)) from error
            if header.base_offset != due_offset and not _may_follow(
                file, position + at + header.size_bytes, header, due_offset, end_offset
            ):
                reason = f"batch has offset {header.base_offset}, expected {due_offset}"
                raise TornLogError(position + at, due_offset, reason)
            yield position, chunk, at, header
            due_offset = header.end_offset
            at += header.size_bytes
        position += at


def scan_past_damage(
    file: LogFile, position: int, due_offset: int, end_offset: int | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """Like `scan`, but log damage and skip it."""
    while True:
        try:
            yield from scan(file, position, due_offset, end_offset)
        except TornLogError as torn:
            logger.error("%s: damaged at byte %d, offset %d: %s", file.path, torn.position, torn.due_offset, torn)
            found = find_sound(file, torn.position + 1, torn.due_offset, end_offset)
            if found is not None:
                position, header = found
                due_offset = header.base_offset
                continue
        return


def find_sound(
    file: LogFile, position: int, due_offset: int, end_offset: int | None = None, stop: int | None = None
) -> tuple[int, BatchHeader] | None:
    """Find the first valid batch between `position` and `stop` whose offsets are within `due_offset` to `end_offset`.

    A batch may start at any byte, and a record's content may imitate one on purpose. So candidates are first checked by
    their headers, and the number of bytes checksummed is limited. Beyond the limit, return None.
    """
    stop = file.size_bytes if stop is None else stop
    end_offset = due_offset + MAX_OFFSETS if end_offset is None else end_offset
    budget_bytes = CRC_BUDGET_BYTES
    pattern = _header_pattern(due_offset, end_offset)
    while stop - position >= HEADER_BYTES:
        chunk = file.read(position, min(CHUNK_BYTES, stop - position))
        for match in pattern.finditer(chunk, 0, len(chunk) - HEADER_BYTES + _MAGIC_AT + 1):
            header = BatchHeader.read(chunk, match.start())
            start = position + match.start()
            if not _is_plausible(header, due_offset, end_offset, stop - start):
                continue
            budget_bytes -= header.size_bytes
            if budget_bytes < 0:
                logger.error("%s: gave up the search for valid batches after byte %d", file.path, position)
                return None
            if _is_sound(file, start, header.size_bytes):
                return start, header
        position += max(len(chunk) - HEADER_BYTES + 1, 1)
    return None


def _header_pattern(due_offset: int, end_offset: int) -> re.Pattern[bytes]:
    """Return a pattern for positions where a batch in this offset range may start: common leading bytes, and magic."""
    first, last = due_offset.to_bytes(8, "big"), max(due_offset, end_offset - 1).to_bytes(8, "big")
    shared = next((index for index in range(8) if first[index] != last[index]), 8)
    return re.compile(b"(?=%b.{%d}\\x%02x)" % (re.escape(first[:shared]), _MAGIC_AT - shared, MAGIC), re.DOTALL)


def _is_plausible(header: BatchHeader, due_offset: int, end_offset: int, available_bytes: int) -> bool:
    return (
        header.base_offset >= due_offset
        and header.end_offset <= end_offset
        and HEADER_BYTES <= header.size_bytes <= available_bytes
        and 0 <= header.record_count <= header.last_offset_delta + 1
        and 0 <= header.attributes <= _ATTRIBUTES_MASK
    )


def _read_chunk(file: LogFile, position: int, chunk_bytes: int) -> memoryview:
    """Read a chunk that includes the whole batch at `position`, if the file contains it."""
    chunk = file.read(position, max(chunk_bytes, HEADER_BYTES))
    if len(chunk) >= HEADER_BYTES:
        size_bytes = BatchHeader.read(chunk).size_bytes
        if len(chunk) < size_bytes <= file.size_bytes - position:
            chunk = file.read(position, size_bytes)
    return memoryview(chunk)


def _may_follow(
    file: LogFile, next_position: int, header: BatchHeader, due_offset: int, end_offset: int | None
) -> bool:
    """Whether to accept a batch after a gap in offsets: it must not overlap the next batch or `end_offset`."""
    if header.base_offset < due_offset:
        return False
    if file.size_bytes - next_position >= HEADER_BYTES:
        return BatchHeader.read(file.read(next_position, HEADER_BYTES)).base_offset >= header.end_offset
    return end_offset is not None and header.end_offset <= end_offset


def _is_sound(file: LogFile, position: int, size_bytes: int) -> bool:
    try:
        check_batch(file.read(position, size_bytes))
    except InvalidBatchError:
        return False
    return True
