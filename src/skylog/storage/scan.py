"""Walking over a log file whose bytes cannot be taken on trust: every batch is checked before it is shown.

Used after a crash, for what earlier processes wrote, and to make indexes again. The CRC covers all of a batch but its
base offset and leader epoch. A wrong base offset shows in its neighbours: offsets ascend, and where one seems to be
left out (compaction does that), the batch after it must agree.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from skylog.records import HEADER_BYTES, BatchHeader, InvalidBatchError, check_batch
from skylog.records.batch import MAGIC
from skylog.storage.files import LogFile

logger = logging.getLogger(__name__)

CHUNK_BYTES: Final = 4 * 1024 * 1024
_MAGIC_AT: Final = 16


class TornLogError(InvalidBatchError):
    """The first byte of a log file that is no sound batch, the offset that was due there, and why."""

    def __init__(self, position: int, due_offset: int, reason: str) -> None:
        super().__init__(reason, corrupt=True)
        self.position = position
        self.due_offset = due_offset


def scan(
    file: LogFile, position: int, due_offset: int, end_offset: int | None = None, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each sound batch from `position` on. Raises TornLogError at the first bad byte.

    `due_offset` is the lowest that may come first, `end_offset` where the file's last batch must end at the latest;
    without it nothing may be left out before the last batch, since nothing could confirm it.
    """
    while position < file.size_bytes:
        chunk = _read_chunk(file, position, chunk_bytes)
        at = 0
        while at < len(chunk):
            try:
                header = check_batch(chunk, at)
            except InvalidBatchError as error:
                if at and position + len(chunk) < file.size_bytes:
                    break  # perhaps only cut by the end of the chunk: read on from here
                raise TornLogError(position + at, due_offset, str(error)) from error
            if header.base_offset != due_offset and not _may_follow(
                file, position + at + header.size_bytes, header, due_offset, end_offset
            ):
                reason = f"batch has offset {header.base_offset} where {due_offset} is due"
                raise TornLogError(position + at, due_offset, reason)
            yield position + at, header
            due_offset = header.end_offset
            at += header.size_bytes
        position += at


def scan_past_damage(
    file: LogFile, position: int, due_offset: int, end_offset: int | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """Like `scan`, but damage is logged and stepped over."""
    while True:
        try:
            yield from scan(file, position, due_offset, end_offset)
        except TornLogError as torn:
            logger.error("%s: damaged at byte %d, offset %d: %s", file.path, torn.position, torn.due_offset, torn)
            found = find_sound(file, torn.position + 1, torn.due_offset)
            if found is not None:
                position, header = found
                due_offset = header.base_offset
                continue
        return


def find_sound(file: LogFile, position: int, due_offset: int) -> tuple[int, BatchHeader] | None:
    """The first sound batch that begins at `position` or later and holds nothing below `due_offset`."""
    while file.size_bytes - position >= HEADER_BYTES:
        chunk = file.read(position, CHUNK_BYTES)
        at = chunk.find(MAGIC, _MAGIC_AT) - _MAGIC_AT
        while 0 <= at <= len(chunk) - HEADER_BYTES:
            header = BatchHeader.read(chunk, at)
            if (
                header.base_offset >= due_offset
                and HEADER_BYTES <= header.size_bytes <= file.size_bytes - position - at
                and _is_sound(file, position + at, header.size_bytes)
            ):
                return position + at, header
            at = chunk.find(MAGIC, at + _MAGIC_AT + 1) - _MAGIC_AT
        position += len(chunk) - HEADER_BYTES + 1
    return None


def _read_chunk(file: LogFile, position: int, chunk_bytes: int) -> memoryview:
    """At least the whole batch at `position`, if the file holds it."""
    chunk = file.read(position, max(chunk_bytes, HEADER_BYTES))
    if len(chunk) >= HEADER_BYTES:
        size_bytes = BatchHeader.read(chunk).size_bytes
        if len(chunk) < size_bytes <= file.size_bytes - position:
            chunk = file.read(position, size_bytes)
    return memoryview(chunk)


def _may_follow(
    file: LogFile, next_position: int, header: BatchHeader, due_offset: int, end_offset: int | None
) -> bool:
    """Whether a batch that leaves offsets out is believed: it must not reach into what comes after it."""
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
