"""Finds the first record at or after a time in one segment. Prepared in the log's thread, run in any thread.

The time index gives the position to start from, and batch headers lead to the batch. Only that batch is opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from skylog.records.compression import CompressionError
from skylog.records.time_lookup import first_since
from skylog.storage.files import LogFile
from skylog.storage.scan import SCAN_BYTES, scan
from skylog.storage.segment import Segment


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TimeSearch:
    """A search that starts with the batch at `position`. `limit_bytes` limits the decompressed size of a batch."""

    file: LogFile
    position: int
    due_offset: int
    end_offset: int
    log_start_offset: int
    timestamp: int
    limit_bytes: int

    def run(self) -> TimestampOffset | None:
        """Return the first matching record. Raises OSError, and InvalidBatchError for a damaged batch before it."""
        for position, header in scan(self.file, self.position, self.due_offset, self.end_offset, SCAN_BYTES):
            if header.max_timestamp < self.timestamp or header.last_offset < self.log_start_offset:
                continue
            epoch = header.partition_leader_epoch
            batch = self.file.read(position, header.size_bytes)
            try:
                found = first_since(batch, self.timestamp, self.log_start_offset, self.limit_bytes)
            except CompressionError:
                # The batch was stored without being opened, and cannot be. No earlier record matches.
                return TimestampOffset(header.max_timestamp, max(header.base_offset, self.log_start_offset), epoch)
            if found is not None:
                return TimestampOffset(*found, epoch)
        return None


def search_segment(
    segment: Segment, timestamp: int, log_start_offset: int, log_end_offset: int, limit_bytes: int
) -> TimeSearch:
    """Prepare the search in a segment, whose indexes must be intact. Raises OSError."""
    start = segment.time_index.lookup(timestamp)
    due_offset, position = segment.offset_index.lookup(segment.base_offset if start is None else start)
    end_offset = log_end_offset if segment.end_offset is None else max(segment.end_offset, log_end_offset)
    return TimeSearch(segment.file, position, due_offset, end_offset, log_start_offset, timestamp, limit_bytes)
