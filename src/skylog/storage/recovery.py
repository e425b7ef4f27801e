"""What is done to a log before it is used: find its sound end, cut the rest, make good what is missing.

After a clean stop nothing of the data is read. After a crash every batch from the recovery point on is read and
checked; at the first one that is torn or damaged the log ends. There is never a hole: what lies behind the first
bad byte is cut, later segments included, and the log says what was cut and where. Below the recovery point, which was
on disk, nothing is cut: damage there is found, and reported, when it is read.
"""

from __future__ import annotations

import contextlib
import logging
from itertools import pairwise
from pathlib import Path

from skylog.records import InvalidBatchError
from skylog.storage.leader_epochs import LeaderEpochs
from skylog.storage.producer_state import ProducerState, snapshot_offsets, snapshot_path
from skylog.storage.scan import TornLogError, scan, scan_past_damage
from skylog.storage.segment import Segment

logger = logging.getLogger(__name__)


def recover(segments: list[Segment], recovery_point: int, epochs: LeaderEpochs, index_interval_bytes: int) -> int:
    """Check everything from `recovery_point` on and cut at the first bad batch; the offset at which the log ends.

    Segments behind the cut are removed, from the disk too: the log will write the same names again.
    """
    first = max((i for i, segment in enumerate(segments) if segment.base_offset <= recovery_point), default=0)
    for segment, following in pairwise(segments):
        segment.end_offset = following.base_offset
    repair_indexes(segments[:first], index_interval_bytes)
    next_offset = segments[first].base_offset
    for index in range(first, len(segments)):
        segment = segments[index]
        if segment.base_offset != next_offset:
            logger.warning("%s: offsets from %d on are missing, it is dropped", segment.path, next_offset)
            _drop_from(segments, index)
            break
        next_offset = _recover_segment(segment, recovery_point, epochs, index_interval_bytes)
    for segment in segments[first:-1]:
        with contextlib.suppress(OSError):  # a full disk: the indexes are in memory, and made again at the next start
            segment.seal()
        segment.close()
    return next_offset


def repair_indexes(segments: list[Segment], index_interval_bytes: int) -> None:
    """Make the indexes again where they are missing or belong to another state of the log."""
    for segment in segments:
        if not segment.has_sealed_indexes():
            logger.warning("%s: an index is missing or damaged and is made again", segment.path)
            segment.rebuild_indexes(index_interval_bytes)


def _recover_segment(segment: Segment, recovery_point: int, epochs: LeaderEpochs, index_interval_bytes: int) -> int:
    """Check one segment, cut what is bad, index what is sound; the offset at which it ends."""
    start, next_offset = _find_start(segment, recovery_point, index_interval_bytes)
    segment.forget_after(next_offset, start)
    end = start
    try:
        for position, header in scan(segment.file, start, next_offset, segment.end_offset):
            segment.note(position, header.size_bytes, header.base_offset, header.max_timestamp, index_interval_bytes)
            epochs.begin(header.partition_leader_epoch, header.base_offset)
            next_offset, end = header.end_offset, position + header.size_bytes
    except TornLogError as torn:
        logger.warning(
            "%s: cut at byte %d of %d, offset %d: %s", segment.path, end, segment.size_bytes, next_offset, torn
        )
        segment.truncate(next_offset, end)
        epochs.truncate_to(next_offset)
    segment.soundness.trust(start, end)
    segment.indexes_checked = True
    return next_offset


def _find_start(segment: Segment, recovery_point: int, index_interval_bytes: int) -> tuple[int, int]:
    """Position and offset from which a segment is to be checked: its start, or where the recovery point lies."""
    if segment.base_offset >= recovery_point:
        return 0, segment.base_offset
    found = _find_recovery_point(segment, recovery_point) if segment.has_plausible_indexes() else None
    if found is None:
        logger.warning("%s: its index is of no use and is made again", segment.path)
        segment.rebuild_indexes(index_interval_bytes)
        found = _find_recovery_point(segment, recovery_point)
    return found or (0, segment.base_offset)


def _find_recovery_point(segment: Segment, recovery_point: int) -> tuple[int, int] | None:
    """Position and offset of the batch at `recovery_point`, or of what lies there instead.

    None where the index does not lead to a sound batch.
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


def restore_producers(directory: Path, segments: list[Segment], end_offset: int, now_ms: int) -> ProducerState:
    """The producers' state at `end_offset`: the newest usable snapshot, then batch headers.

    When the producers of those batches were heard is not known any more: they count as heard now. Snapshots beyond
    `end_offset` tell of batches that were cut, and are removed.
    """
    producers = ProducerState()
    replay_from = 0
    for offset in reversed(snapshot_offsets(directory)):
        path = snapshot_path(directory, offset)
        if offset > end_offset:
            path.unlink()
        elif producers.load(path, now_ms):
            replay_from = offset
            break
    if replay_from < end_offset:
        first = max((i for i, segment in enumerate(segments) if segment.base_offset <= replay_from), default=0)
        for segment in segments[first:]:
            _replay(segment, replay_from, producers, now_ms)
    return producers


def _replay(segment: Segment, replay_from: int, producers: ProducerState, now_ms: int) -> None:
    try:
        start = segment.position_of(replay_from) if segment.base_offset < replay_from else 0
        for _, header in segment.headers(start):
            if header.producer_id >= 0 and header.base_offset >= replay_from:
                producers.record(header, header.base_offset, now_ms)
    except InvalidBatchError as error:
        logger.error("%s: its producers are only known up to the damage: %s", segment.path, error)
