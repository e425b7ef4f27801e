"""Opens the folder of a log: creates it or removes leftovers, recovers the segments and the state of producers."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from skylog.storage.compaction import finish_swaps
from skylog.storage.files import FilePool
from skylog.storage.leader_epochs import LeaderEpochs
from skylog.storage.partition_metadata import FILE_NAME as PARTITION_METADATA
from skylog.storage.partition_metadata import read_topic_id, write_topic_id
from skylog.storage.producer_recovery import restore_aborted, restore_producers
from skylog.storage.producer_snapshot import Snapshot, snapshot_offsets, take_snapshot
from skylog.storage.producer_state import ProducerState
from skylog.storage.recovery import recover, repair_indexes, restore_epochs, seal_closed
from skylog.storage.segment import REMOVED_SUFFIX, Segment, segment_bases
from skylog.storage.segments import Segments
from skylog.storage.unflushed import Unflushed

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """The parts of a log as they were found on disk, or created.

    `is_as_closed` means that the files are as a clean stop leaves them: nothing had to be repaired.
    """

    segments: Segments
    epochs: LeaderEpochs
    producers: ProducerState
    unflushed: Unflushed
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    is_as_closed: bool


def open_log(
    directory: Path,
    pool: FilePool,
    *,
    recovery_point: int,
    log_start_offset: int,
    topic_id: UUID | None,
    clean: bool,
    index_interval_bytes: int,
    now_ms: int,
) -> OpenedLog:
    """Open the log in `directory`, or create an empty one that begins at `log_start_offset`. Raises OSError.

    After a stop that was not `clean`, batches from `recovery_point` on are checked.
    """
    changed_directories = _prepare(directory)
    new_files = _write_identity(directory, topic_id)
    epochs = LeaderEpochs(directory)
    found = [Segment(directory, base_offset, pool) for base_offset in segment_bases(directory)]
    is_new = not found
    if is_new:
        found = [Segment(directory, log_start_offset, pool, create=True)]
    snapshots = snapshot_offsets(directory)
    # A clean stop writes a snapshot of the producers at the end of the log, so its name gives the end offset.
    if clean and snapshots and snapshots[-1] >= found[-1].base_offset:
        recovery_point = log_end_offset = snapshots[-1]
        is_as_closed, is_recovered = all(segment.has_sealed_indexes() for segment in found), False
        repair_indexes(found, index_interval_bytes)
    else:
        log_end_offset = recover(found, recovery_point, epochs, index_interval_bytes)
        if log_end_offset < recovery_point and not is_new:
            logger.warning(
                "%s: ends at offset %d, although all before %d was on disk: files are missing or cut short, "
                "unless a truncation was interrupted",
                directory,
                log_end_offset,
                recovery_point,
            )
        recovery_point = min(recovery_point, log_end_offset)
        is_as_closed, is_recovered = False, True
    if epochs.is_lost:
        restore_epochs(found, log_end_offset, epochs)
    for segment, following in zip(found, [*found[1:], None], strict=True):
        segment.take_as_found(log_end_offset if following is None else following.base_offset)
    producers = restore_producers(directory, found, log_end_offset, now_ms, recovery_point)
    restore_aborted(found, now_ms)
    if is_recovered:
        seal_closed(found)
    unflushed = Unflushed(changed_directories, new_files)
    snapshot = _lost_snapshot(directory, found, now_ms)
    if snapshot is not None:
        unflushed.add_roll(directory, snapshot)
    found[-1].activate()
    return OpenedLog(
        Segments(directory, pool, found, now_ms),
        epochs,
        producers,
        unflushed,
        min(max(log_start_offset, found[0].base_offset), log_end_offset),
        log_end_offset,
        recovery_point,
        is_as_closed,
    )


def _lost_snapshot(directory: Path, segments: list[Segment], now_ms: int) -> Snapshot | None:
    """Return the snapshot of producers at the start of the last segment, if a crash came before it was written.

    Retention needs it: it drops the segments that the state could be restored from.
    """
    base_offset = segments[-1].base_offset
    if len(segments) == 1 or (snapshot_offsets(directory) or [0])[-1] >= base_offset:
        return None
    producers = restore_producers(directory, segments[:-1], base_offset, now_ms)
    return take_snapshot(producers, directory, base_offset)


def _prepare(directory: Path) -> list[Path]:
    """Create the directory, or remove leftovers and finish swaps in it. Return the directories that changed."""
    if not directory.exists():
        directory.mkdir()
        return [directory.parent, directory]
    for path in directory.iterdir():
        if path.suffix in (REMOVED_SUFFIX, ".tmp"):
            path.unlink()
    finish_swaps(directory)
    return [directory]


def _write_identity(directory: Path, topic_id: UUID | None) -> list[Path]:
    """Write the topic's id into the folder unless it is already there. Return the file if it was written."""
    if topic_id is None or read_topic_id(directory) == topic_id:
        return []
    write_topic_id(directory, topic_id)
    return [directory / PARTITION_METADATA]
