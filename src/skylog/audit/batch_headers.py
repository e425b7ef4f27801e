"""Counts the messages of a log from its batch headers, without opening batches.

A header holds the timestamp of the first record and the largest timestamp. If both are in one window, so is the batch.
Otherwise its messages are counted for the span between them, and `books` decides which windows they belong to. A batch
with a timestamp before the window of its first record is counted wrongly.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import Final

from skylog.audit.counts import WindowCounts
from skylog.records import HEADER_BYTES, LOG_OVERHEAD_BYTES, InvalidBatchError
from skylog.records.batch import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL
from skylog.storage import FileSlice

CHUNK_BYTES: Final = 64 * 1024
LARGE_BATCH_BYTES: Final = 16 * 1024  # from this size on, one read per header is cheaper than reading the batch
# The broker's event loop waits while this thread holds the interpreter lock: sleep after this many batches.
_YIELD_BATCHES: Final = 512
_YIELD_S: Final = 0.001
_UNUSUAL: Final = CONTROL | LOG_APPEND_TIME

# base_offset, length, attributes, last_offset_delta, base_timestamp, max_timestamp, record_count
_FIELDS = Struct(">qi9xhiqq14xi")
_PRODUCER_ID = Struct(">q")
_PRODUCER_ID_AT: Final = 43


class _AbortedBatches:
    """Finds the batches of aborted transactions, like a consumer: from the first offset to the producer's next marker.

    `aborted` has producer ids with the first offsets of their transactions, sorted by offset.
    """

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._coming = deque(aborted)
        self._producers: set[int] = set()

    def has(self, base_offset: int, producer_id: int, *, is_marker: bool) -> bool:
        """Whether a transactional batch was aborted. Call it for each of them, in order."""
        while self._coming and self._coming[0][1] <= base_offset:
            self._producers.add(self._coming.popleft()[0])
        if is_marker:
            self._producers.discard(producer_id)
        return producer_id in self._producers


def count_batches(
    part: FileSlice,
    counts: WindowCounts,
    start_offset: int,
    end_offset: int,
    aborted: Sequence[tuple[int, int]] = (),
) -> int:
    """Add the records from `start_offset` up to `end_offset` to `counts`; return the offset after the last batch.

    `part` starts with the batch that holds `start_offset` and contains whole batches. `aborted` are its aborted
    transactions (`Log.aborted_in`), whose records do not count. Runs in a separate thread. Raises InvalidBatchError and
    OSError.
    """
    transactions = _AbortedBatches(aborted) if aborted else None
    file, position, part_end = part.file, part.position, part.position + part.length
    unpack = _FIELDS.unpack_from
    reached, size_bytes, batches = start_offset, 0, 0
    row, start_ms, end_ms = [0, 0], 0, 0
    while position < part_end:
        if batches >= _YIELD_BATCHES:
            batches = 0
            time.sleep(_YIELD_S)
        read_bytes = HEADER_BYTES if size_bytes >= LARGE_BATCH_BYTES else CHUNK_BYTES
        chunk = file.read(position, min(read_bytes, part_end - position))
        at, last_at = 0, len(chunk) - HEADER_BYTES
        if last_at < 0:
            raise InvalidBatchError(f"{file.path} ends inside a header at byte {position}", corrupt=True)
        while at <= last_at:
            base_offset, length, attributes, delta, first_ms, max_ms, records = unpack(chunk, at)
            size_bytes = length + LOG_OVERHEAD_BYTES
            batch_end = base_offset + delta + 1
            if size_bytes < HEADER_BYTES or batch_end <= reached or not 0 <= records <= delta + 1:
                raise InvalidBatchError(f"{file.path} has no batch at byte {position + at}", corrupt=True)
            if batch_end > end_offset:
                return reached
            if base_offset < start_offset:  # the log starts inside this batch
                records = min(records, batch_end - start_offset)
            if attributes & _UNUSUAL or not start_ms <= first_ms <= max_ms < end_ms:
                row, start_ms, end_ms = _row(counts, attributes, first_ms, max_ms)
            if transactions is not None and attributes & TRANSACTIONAL:
                (producer_id,) = _PRODUCER_ID.unpack_from(chunk, at + _PRODUCER_ID_AT)
                if transactions.has(base_offset, producer_id, is_marker=bool(attributes & CONTROL)):
                    row, start_ms, end_ms = [0, 0], 0, 0
            row[0] += records
            row[1] += size_bytes
            reached = batch_end
            at += size_bytes
            batches += 1
        position += at
    return reached


def _row(counts: WindowCounts, attributes: int, first_ms: int, max_ms: int) -> tuple[list[int], int, int]:
    """Return the row to count a batch in, and the time range of following batches that belong to the same row."""
    if attributes & CONTROL:
        return [0, 0], 0, 0  # not a message
    last = max_ms // counts.window_ms
    first = last if attributes & LOG_APPEND_TIME else min(first_ms // counts.window_ms, last)
    if first != last:
        return counts.row(first, last), 0, 0
    return counts.row(last, last), last * counts.window_ms, (last + 1) * counts.window_ms
