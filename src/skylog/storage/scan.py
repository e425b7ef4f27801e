"""Walking over a log file whose bytes cannot be taken on trust: every batch is checked before it is shown.

Used after a crash, for what earlier processes wrote, and to make indexes again. The CRC covers all of a batch but its
base offset and leader epoch. A wrong base offset shows in its neighbours: offsets ascend, and where one seems to be
left out (compaction does that), the batch after it must agree.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Final

from skylog.records import HEADER_BYTES, BatchHeader, InvalidBatchError, check_batch
from skylog.records.batch import CODEC_MASK, CONTROL, LOG_APPEND_TIME, MAGIC, TRANSACTIONAL
from skylog.storage.files import LogFile

logger = logging.getLogger(__name__)

CHUNK_BYTES: Final = 4 * 1024 * 1024
CRC_BUDGET_BYTES: Final = 256 * 1024 * 1024
MAX_OFFSETS: Final = 1 << 31  # that the index of one segment can tell apart
_MAGIC_AT: Final = 16
_ATTRIBUTES_MASK: Final = CODEC_MASK | LOG_APPEND_TIME | TRANSACTIONAL | CONTROL


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
            found = find_sound(file, torn.position + 1, torn.due_offset, end_offset)
            if found is not None:
                position, header = found
                due_offset = header.base_offset
                continue
        return


def find_sound(
    file: LogFile, position: int, due_offset: int, end_offset: int | None = None, stop: int | None = None
) -> tuple[int, BatchHeader] | None:
    """The first sound batch between `position` and `stop` that holds nothing outside `due_offset` to `end_offset`.

    Any byte may begin a batch, and what a record holds may look like one on purpose. So a candidate is judged by its
    header, and the work on checksums has a limit: beyond it nothing is found.
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
                logger.error("%s: the search for sound batches after byte %d is given up", file.path, position)
                return None
            if _is_sound(file, start, header.size_bytes):
                return start, header
        position += max(len(chunk) - HEADER_BYTES + 1, 1)
    return None


def _header_pattern(due_offset: int, end_offset: int) -> re.Pattern[bytes]:
    """Matches where a batch within these offsets may begin: by the bytes that all of them share, and the magic."""
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
