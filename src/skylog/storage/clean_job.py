"""A cleaning job and its result. Both can be pickled: `cleaner` runs jobs in another process."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

FOLDER: Final = "cleaning"
"""The folder of a log in which its new segments are written."""

SWAP_SUFFIX: Final = ".swap"
"""Of a new segment that has been committed, and replaces the segments of its range."""

KEY_BYTES: Final = 104
"""Memory per key in the map: hash, length, the number and place of a record, and up to 64 bytes of the key."""


class SourceSegment(NamedTuple):
    """A closed segment to clean. `cleaned_ms` is when it was cleaned last, for a dirty one the present time.

    `drops_tombstones` is true if that was at least `delete.retention.ms` ago.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    drops_tombstones: bool
    cleaned_ms: int = 0


@dataclass(frozen=True, slots=True)
class CleanJob:
    """A cleaning job. `sources` are consecutive segments from the log's start, dirty from `first_dirty_offset` on.

    No transaction that begins in them is open. `aborted` has the aborted transactions of the log, packed. The last
    batch to be cleaned is the one with which the number of keys reaches `max_keys`.
    """

    directory: Path
    sources: tuple[SourceSegment, ...]
    first_dirty_offset: int
    segment_bytes: int
    index_interval_bytes: int
    limit_bytes: int
    max_keys: int
    aborted: bytes = b""
    now_ms: int = 0
    delete_retention_ms: int = 0


class CleanedSegment(NamedTuple):
    """A new segment in the folder `cleaning`. It replaces the segments of this range of offsets."""

    base_offset: int
    end_offset: int


@dataclass(slots=True)
class CleanResult:
    """The result of a job. The log is clean up to `clean_to`."""

    clean_to: int
    segments: list[CleanedSegment] = field(default_factory=list)
    read_bytes: int = 0
    written_bytes: int = 0
    kept_records: int = 0
    dropped_records: int = 0
