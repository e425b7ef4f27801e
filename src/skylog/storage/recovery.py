"""What is done to a log before it is used: find its sound end, cut the rest, make good what is missing.

After a clean stop nothing of the data is read. After a crash every batch from the recovery point on is read and
checked; at the first one that is torn or damaged the log ends. There is never a hole: what lies behind the first
bad byte is cut, later segments included, and the log says what was cut and where.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from skylog.records import HEADER_BYTES, BatchHeader, InvalidBatchError, check_batch
from skylog.storage.files import LogFile
from skylog.storage.leader_epochs import LeaderEpochs
from skylog.storage.producer_state import ProducerState, snapshot_offsets, snapshot_path
from skylog.storage.segment import Segment

logger = logging.getLogger(__name__)

CHUNK_BYTES: Final = 4 * 1024 * 1024


class TornLogError(InvalidBatchError):
    """The first byte of a log file that is no sound batch, and why."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason, corrupt=True)
        self.position = position
        self.reason = reason


def scan(file: LogFile, position: int, expected_offset: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each sound batch from `position` on. Raises TornLogError at the first bad byte."""
    while position < file.size_bytes:
        chunk = memoryview(file.read(position, CHUNK_BYTES))
        if len(chunk) >= HEADER_BYTES:
            size_bytes = BatchHeader.read(chunk).size_bytes
            if len(chunk) < size_bytes <= file.size_bytes - position:
                chunk = memoryview(file.read(position, size_bytes))
        at = 0
        while at < len(chunk):
            try:
                header = check_batch(chunk, at)
                if header.base_offset < expected_offset:
                    raise InvalidBatchError(f"offset {header.base_offset} where {expected_offset} or later is due")
            except InvalidBatchError as error:
                if at and position + len(chunk) < file.size_bytes:
                    break  # perhaps only cut by the end of the chunk: read on from here
                raise TornLogError(position + at, str(error)) from error
            yield position + at, header
            expected_offset = header.end_offset
            at += header.size_bytes
        position += at


def recover(
    segments: list[Segment], recovery_point: int, epochs: LeaderEpochs, index_interval_bytes: int
) -> list[Path]:
    """Check everything from `recovery_point` on and cut at the first bad batch.

    Removes the segments behind the cut from `segments` and returns the files that are to be unlinked.
    """
    first = max((i for i, segment in enumerate(segments) if segment.base_offset <= recovery_point), default=0)
    repair_indexes(segments[:first], index_interval_bytes)
    next_offset = None
    for index in range(first, len(segments)):
        segment = segments[index]
        if next_offset is not None and segment.base_offset != next_offset:
            logger.warning("%s: offsets from %d on are missing, it is dropped", segment.path, next_offset)
            return _drop_from(segments, index)
        next_offset = _recover_segment(segment, recovery_point, epochs, index_interval_bytes)
        if index < len(segments) - 1:
            segment.close()
    return []


def _recover_segment(segment: Segment, recovery_point: int, epochs: LeaderEpochs, index_interval_bytes: int) -> int:
    """Check one segment, cut what is bad, index what is sound; the offset at which it ends."""
    start = end = _restart_position(segment, recovery_point)
    next_offset = max(segment.base_offset, recovery_point) if start else segment.base_offset
    try:
        for position, header in scan(segment.file, start, next_offset):
            segment.note(position, header.size_bytes, header.base_offset, header.max_timestamp, index_interval_bytes)
            epochs.begin(header.partition_leader_epoch, header.base_offset)
            next_offset, end = header.end_offset, position + header.size_bytes
    except TornLogError as torn:
        logger.warning(
            "%s: cut at byte %d of %d, offset %d: %s", segment.path, end, segment.size_bytes, next_offset, torn.reason
        )
        segment.truncate(next_offset, end)
        epochs.truncate_to(next_offset)
    segment.trust(start, end)
    return next_offset


def _drop_from(segments: list[Segment], index: int) -> list[Path]:
    dropped = [path for segment in segments[index:] for path in segment.remove()]
    del segments[index:]
    return dropped


def repair_indexes(segments: list[Segment], index_interval_bytes: int) -> None:
    """Make the indexes again where they are missing or cannot be right."""
    for segment in segments:
        if not segment.has_indexes():
            logger.warning("%s: an index is missing or damaged and is made again", segment.path)
            segment.rebuild_indexes(index_interval_bytes)


def _restart_position(segment: Segment, recovery_point: int) -> int:
    """Where checking begins in `segment`, with its indexes cut to match: at the recovery point if it can be found."""
    start = 0
    if segment.base_offset < recovery_point and segment.has_indexes():
        try:
            start = _find_recovery_point(segment, recovery_point)
        except (InvalidBatchError, OSError) as error:
            logger.warning("%s: checked from its start: %s", segment.path, error)
    segment.forget_after(recovery_point if start else segment.base_offset, start)
    return start


def _find_recovery_point(segment: Segment, recovery_point: int) -> int:
    """Where the batch at `recovery_point` begins; 0 where the file does not agree that there is such a place."""
    _, end = segment.offset_index.lookup(recovery_point)
    end_offset = -1
    for position, header in segment.headers(end):
        if header.base_offset >= recovery_point:
            return position
        end, end_offset = position + header.size_bytes, header.end_offset
    return end if end == segment.size_bytes and end_offset == recovery_point else 0


def restore_producers(directory: Path, segments: list[Segment], up_to: int, end_offset: int) -> ProducerState:
    """The producers' state at `end_offset`: the newest usable snapshot at or below `up_to`, then batch headers.

    Snapshots beyond `end_offset` tell of batches that were cut, and are removed.
    """
    producers = ProducerState()
    replay_from = 0
    for offset in reversed(snapshot_offsets(directory)):
        path = snapshot_path(directory, offset)
        if offset > end_offset:
            path.unlink()
        elif offset <= up_to and producers.load(path):
            replay_from = offset
            break
    if replay_from < end_offset:
        first = max((i for i, segment in enumerate(segments) if segment.base_offset <= replay_from), default=0)
        for segment in segments[first:]:
            start = segment.position_of(replay_from) if segment.base_offset < replay_from else 0
            for _, header in segment.headers(start):
                if header.producer_id >= 0 and header.base_offset >= replay_from:
                    producers.record(header, header.base_offset)
    return producers
