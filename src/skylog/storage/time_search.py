"""The search for the first record of a time in one segment: prepared where the log lives, run in any thread.

The time index leads to the neighbourhood, batch headers to the batch, and that one batch is opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from skylog.records.compression import CompressionError
from skylog.records.time_lookup import first_since
from skylog.storage.files import LogFile
from skylog.storage.scan import scan
from skylog.storage.segment import SCAN_BYTES, Segment


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TimeSearch:
    """Looks from the batch at `position` on. `limit_bytes` bounds what a batch may be when it is opened."""

    file: LogFile
    position: int
    due_offset: int
    end_offset: int
    log_start_offset: int
    timestamp: int
    limit_bytes: int

    def run(self) -> TimestampOffset | None:
        """Raises OSError, and InvalidBatchError where a batch on the way is damaged."""
        for position, header in scan(self.file, self.position, self.due_offset, self.end_offset, SCAN_BYTES):
            if header.max_timestamp < self.timestamp or header.last_offset < self.log_start_offset:
                continue
            epoch = header.partition_leader_epoch
            batch = self.file.read(position, header.size_bytes)
            try:
                found = first_since(batch, self.timestamp, self.log_start_offset, self.limit_bytes)
            except CompressionError:
                # It was stored unopened and cannot be opened. No record of the time asked for lies before it.
                return TimestampOffset(header.max_timestamp, max(header.base_offset, self.log_start_offset), epoch)
            if found is not None:
                return TimestampOffset(*found, epoch)
        return None


def search_segment(
    segment: Segment, timestamp: int, log_start_offset: int, log_end_offset: int, limit_bytes: int
) -> TimeSearch:
    """The search in a segment whose indexes are intact. Raises OSError."""
    start = segment.time_index.lookup(timestamp)
    due_offset, position = segment.offset_index.lookup(segment.base_offset if start is None else start)
    end_offset = log_end_offset if segment.end_offset is None else max(segment.end_offset, log_end_offset)
    return TimeSearch(segment.file, position, due_offset, end_offset, log_start_offset, timestamp, limit_bytes)
