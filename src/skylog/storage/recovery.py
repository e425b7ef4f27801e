"""Recovers a log when it is opened: finds the end of valid data, truncates the rest, and rebuilds missing state.

After a clean stop no data is read. After a crash every batch from the recovery point on is read and checked, and the
log is truncated at the first torn or damaged one. There is never a gap: everything after the first invalid byte is
removed, including later segments, and the position and reason are logged. Nothing below the recovery point is
truncated, because it was on disk: damage there is detected and reported when it is read.
"""

from __future__ import annotations

import contextlib
import logging
from itertools import pairwise

from skylog.records import BatchHeader, InvalidBatchError
from skylog.storage.leader_epochs import LeaderEpochs
from skylog.storage.scan import TornLogError, scan, scan_past_damage
from skylog.storage.segment import Segment

logger = logging.getLogger(__name__)


def recover(segments: list[Segment], recovery_point: int, epochs: LeaderEpochs, index_interval_bytes: int) -> int:
    """Check all batches from `recovery_point` on and truncate at the first invalid one. Return the log's end offset.

    Segments after it are also deleted from disk, because the log will use the same file names again. The epochs become
    those of the batches: a crash may have lost an entry, or the batches of one. Call `seal_closed` when the producers
    are restored, too.
    """
    first = max((i for i, segment in enumerate(segments) if segment.base_offset <= recovery_point), default=0)
    for segment, following in pairwise(segments):
        segment.end_offset = following.base_offset
    repair_indexes(segments[:first], index_interval_bytes)
    if first and segments[first].base_offset == recovery_point:
        _cut_overlap(segments[first - 1], recovery_point)
    next_offset = segments[first].base_offset
    begun: list[tuple[int, int]] = []
    for index in range(first, len(segments)):
        segment = segments[index]
        if segment.base_offset != next_offset:
            logger.warning("%s: deleted, because offsets from %d on are missing before it", segment.path, next_offset)
            _drop_from(segments, index)
            break
        next_offset = _recover_segment(segment, recovery_point, begun, index_interval_bytes)
    epochs.restore(begun, next_offset)
    return next_offset


def _cut_overlap(segment: Segment, end_offset: int) -> None:
    """Cut a segment where the next one begins.

    A truncation begins another file at the recovery point. If the machine crashes before the cut of the file before it
    is on disk, that file has the batches again that were cut off.
    """
    found = _find_recovery_point(segment, end_offset)
    if found is not None and found[1] == end_offset and found[0] < segment.size_bytes:
        logger.warning("%s: truncated at offset %d, where the next segment begins", segment.path, end_offset)
        segment.truncate(end_offset, found[0])


def seal_closed(segments: list[Segment]) -> None:
    """Write the recovered indexes of all segments but the last."""
    for segment in segments[:-1]:
        with contextlib.suppress(OSError):  # the disk is full: the indexes are in memory, the next start rebuilds them
            segment.seal()
        segment.close()


def restore_epochs(segments: list[Segment], log_end_offset: int, epochs: LeaderEpochs) -> None:
    """Restore a lost history of epochs from the headers of all batches."""
    begun: list[tuple[int, int]] = []
    for segment in segments:
        try:
            for _, header in segment.headers(0):
                _note_epoch(header, begun)
        except InvalidBatchError as error:
            logger.error("%s: leader epochs are restored only up to the damage: %s", segment.path, error)
    epochs.restore(begun, log_end_offset)


def _note_epoch(header: BatchHeader, begun: list[tuple[int, int]]) -> None:
    if not begun or header.partition_leader_epoch != begun[-1][0]:
        begun.append((header.partition_leader_epoch, header.base_offset))


def repair_indexes(segments: list[Segment], index_interval_bytes: int) -> None:
    """Rebuild indexes that are missing or belong to another state of the log."""
    for segment in segments:
        if not segment.has_sealed_indexes():
            logger.warning("%s: rebuilding the indexes, because one is missing or damaged", segment.path)
            segment.rebuild_indexes(index_interval_bytes)


def _recover_segment(
    segment: Segment, recovery_point: int, begun: list[tuple[int, int]], index_interval_bytes: int
) -> int:
    """Check and index one segment, and truncate it at the first invalid batch. Return its end offset.

    The epochs of its batches are added to `begun`, each with the offset of its first batch.
    """
    start, next_offset = _find_start(segment, recovery_point, index_interval_bytes)
    segment.forget_after(next_offset, start)
    end = start
    try:
        for position, header in scan(segment.file, start, next_offset, segment.end_offset):
            segment.note(position, header.size_bytes, header.base_offset, header.max_timestamp, index_interval_bytes)
            _note_epoch(header, begun)
            next_offset, end = header.end_offset, position + header.size_bytes
    except TornLogError as torn:
        logger.warning(
            "%s: truncated at byte %d of %d, offset %d: %s", segment.path, end, segment.size_bytes, next_offset, torn
        )
        segment.truncate(next_offset, end)
    segment.soundness.trust(start, end)
    segment.indexes_checked = True
    return next_offset


def _find_start(segment: Segment, recovery_point: int, index_interval_bytes: int) -> tuple[int, int]:
    """Return position and offset from which to check a segment: its start, or the recovery point."""
    if segment.base_offset >= recovery_point:
        return 0, segment.base_offset
    found = _find_recovery_point(segment, recovery_point) if segment.has_plausible_indexes() else None
    if found is None:
        logger.warning("%s: rebuilding the indexes, because they are damaged", segment.path)
        segment.rebuild_indexes(index_interval_bytes)
        found = _find_recovery_point(segment, recovery_point)
    return found or (0, segment.base_offset)


def _find_recovery_point(segment: Segment, recovery_point: int) -> tuple[int, int] | None:
    """Return position and offset of the batch at `recovery_point`, or of the end of the batches before it.

    None if the index does not lead to a valid batch.
    """
    offset, position = segment.offset_index.lookup(recovery_point)
    is_entry = position > 0
    for start, header in scan_past_damage(segment.file, position, offset, segment.end_offset):
        if is_entry and (start, header.base_offset) != (position, offset):
            return None
        is_entry = False
        if header.base_offset >= recovery_point:
            return (start, header.base_offset) if header.base_offset == recovery_point else (position, offset)
        position, offset = start + header.size_bytes, header.end_offset
    return None if is_entry else (position, offset)


def _drop_from(segments: list[Segment], index: int) -> None:
    for segment in segments[index:]:
        for path in segment.remove():
            path.unlink()
    del segments[index:]
