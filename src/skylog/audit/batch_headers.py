"""Counting the messages of a log by the headers of its batches, without opening one.

A header has the time of the first record and the largest time. Where both lie in one window, so does the batch;
otherwise its messages are counted for the span from one to the other, and `books` settle which window they belong to.
A producer that lets time go back inside a batch, to before its first record's window, is not seen through.
"""

from __future__ import annotations

import time
from struct import Struct
from typing import Final

from skylog.audit.counts import WindowCounts
from skylog.records import HEADER_BYTES, LOG_OVERHEAD_BYTES, InvalidBatchError
from skylog.records.batch import CONTROL, LOG_APPEND_TIME
from skylog.storage import FileSlice

CHUNK_BYTES: Final = 64 * 1024
LARGE_BATCH_BYTES: Final = 16 * 1024  # from here on a read of its own for each header is cheaper than reading it all
# The broker's event loop waits while this thread has the interpreter: let it in after so many batches, for so long.
_TURN_BATCHES: Final = 512
_TURN_SECONDS: Final = 0.001
_UNUSUAL: Final = CONTROL | LOG_APPEND_TIME

# base_offset, length, attributes, last_offset_delta, base_timestamp, max_timestamp, record_count
_FIELDS = Struct(">qi9xhiqq14xi")


def count_batches(part: FileSlice, counts: WindowCounts, start_offset: int, end_offset: int) -> int:
    """Add the records from `start_offset` up to `end_offset` to `counts`; the offset after the last batch counted.

    `part` begins with the batch that holds `start_offset` and has whole batches. Runs in a thread of its own. Raises
    InvalidBatchError and OSError.
    """
    file, position, part_end = part.file, part.position, part.position + part.length
    unpack = _FIELDS.unpack_from
    reached, size_bytes, batches = start_offset, 0, 0
    row, start_ms, end_ms = [0, 0], 0, 0
    while position < part_end:
        if batches >= _TURN_BATCHES:
            batches = 0
            time.sleep(_TURN_SECONDS)
        wanted = HEADER_BYTES if size_bytes >= LARGE_BATCH_BYTES else CHUNK_BYTES
        chunk = file.read(position, min(wanted, part_end - position))
        at, last_at = 0, len(chunk) - HEADER_BYTES
        if last_at < 0:
            raise InvalidBatchError(f"{file.path} ends inside a header at byte {position}", corrupt=True)
        while at <= last_at:
            base_offset, length, attributes, delta, first_ms, max_ms, records = unpack(chunk, at)
            size_bytes = length + LOG_OVERHEAD_BYTES
            batch_end = base_offset + delta + 1
            if size_bytes < HEADER_BYTES or batch_end <= reached:
                raise InvalidBatchError(f"{file.path} has no batch at byte {position + at}", corrupt=True)
            if batch_end > end_offset:
                return reached
            if base_offset < start_offset:  # the log begins inside this batch
                records = min(records, batch_end - start_offset)
            if attributes & _UNUSUAL or not start_ms <= first_ms <= max_ms < end_ms:
                row, start_ms, end_ms = _row(counts, attributes, first_ms, max_ms)
            row[0] += records
            row[1] += size_bytes
            reached = batch_end
            at += size_bytes
            batches += 1
        position += at
    return reached


def _row(counts: WindowCounts, attributes: int, first_ms: int, max_ms: int) -> tuple[list[int], int, int]:
    """Where to count a batch, and the times of those that follow which may be counted there without asking again."""
    if attributes & CONTROL:
        return [0, 0], 0, 0  # not a message
    last = max_ms // counts.window_ms
    first = last if attributes & LOG_APPEND_TIME else min(first_ms // counts.window_ms, last)
    if first != last:
        return counts.row(first, last), 0, 0
    return counts.row(last, last), last * counts.window_ms, (last + 1) * counts.window_ms
