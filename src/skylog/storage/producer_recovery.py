"""Restores the producers of a log and its aborted transactions, from a snapshot and the batches after it.

Both are functions of the log. The entries of aborted transactions are in the files of closed segments and need no
replay. Those of the segments from the snapshot on are replayed. If the file of an older segment is missing or damaged,
the whole log before it is replayed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from skylog.records import BatchHeader, InvalidBatchError, read_marker
from skylog.storage.aborted_index import AbortedTransaction, Knowledge
from skylog.storage.files import LogFile
from skylog.storage.producer_snapshot import load_snapshot, snapshot_offsets, snapshot_path
from skylog.storage.producer_state import ProducerState
from skylog.storage.scan import headers, read_batch, scan_past_damage
from skylog.storage.segment import Segment

logger = logging.getLogger(__name__)


def restore_producers(
    directory: Path, segments: Sequence[Segment], end_offset: int, now_ms: int, recovery_point: int | None = None
) -> ProducerState:
    """Return the state of producers at `end_offset`: a usable snapshot, plus the batches after it.

    The times of those batches are unknown, so their producers count as active now. Snapshots beyond `end_offset`
    describe batches that were truncated, and are deleted.

    After a crash, what was written after the `recovery_point` may be lost, the index of aborted transactions of a
    closed segment, too. So a snapshot from before it is best, and then the first one after it. One from before the
    first segment is the last resort: retention has dropped the batches between them.
    """
    delete_snapshots(directory, end_offset)
    base_offset = segments[0].base_offset if segments else 0
    best = end_offset if recovery_point is None else recovery_point
    producers, replay_from = load_best(directory, base_offset, end_offset, best, now_ms)
    if replay_from < end_offset:
        first = max((i for i, segment in enumerate(segments) if segment.base_offset <= replay_from), default=0)
        for segment in segments[first:]:
            segment.aborted.truncate_to(replay_from)
            for aborted in replay(_since(segment, replay_from), replay_from, producers, now_ms):
                segment.aborted.append(aborted)
            if segment.base_offset >= replay_from:
                segment.aborted.knowledge = Knowledge.KNOWN
    return producers


def delete_snapshots(directory: Path, end_offset: int) -> None:
    """Delete the snapshots beyond `end_offset`."""
    for offset in snapshot_offsets(directory):
        if offset > end_offset:
            snapshot_path(directory, offset).unlink()


def load_best(
    directory: Path, base_offset: int, end_offset: int, recovery_point: int, now_ms: int
) -> tuple[ProducerState, int]:
    """Return the state in the best snapshot that is not damaged, and its end offset; 0 if there is none."""
    for offset in _usable_snapshots(directory, base_offset, end_offset, recovery_point):
        loaded = load_snapshot(snapshot_path(directory, offset), now_ms)
        if loaded is not None:
            return loaded, offset
    return ProducerState(), 0


def _usable_snapshots(directory: Path, base_offset: int, end_offset: int, recovery_point: int) -> list[int]:
    """Return the end offsets of snapshots, the best one first."""
    offsets = snapshot_offsets(directory)
    partial = [offset for offset in offsets if offset < base_offset]
    before = [offset for offset in offsets if base_offset <= offset <= recovery_point]
    after = [offset for offset in offsets if max(base_offset, recovery_point + 1) <= offset <= end_offset]
    return [*reversed(before), *after, *reversed(partial)]


def forget_producers(directory: Path) -> ProducerState:
    """Return the state of a log that begins without history, and delete all snapshots."""
    for offset in snapshot_offsets(directory):
        snapshot_path(directory, offset).unlink()
    return ProducerState()


def restore_aborted(segments: Sequence[Segment], now_ms: int) -> None:
    """Rebuild the aborted transactions of segments whose index is lost, from all batches of the log up to there."""
    lost = [index for index, segment in enumerate(segments) if segment.aborted.knowledge is Knowledge.LOST]
    if not lost:
        return
    producers = ProducerState()
    for index, segment in enumerate(segments[: lost[-1] + 1]):
        found = list(replay(_since(segment, segment.base_offset), segment.base_offset, producers, now_ms))
        if index in lost:
            logger.warning("%s: rebuilt the index of aborted transactions, %d entries", segment.path, len(found))
            segment.aborted.replace(found)
            with contextlib.suppress(OSError):  # the entries are in memory, and the next start rebuilds them
                segment.aborted.write(segment.size_bytes)


class Batches(NamedTuple):
    """The batches of a segment's file from `position` on, where `due_offset` is the lowest offset allowed."""

    file: LogFile
    position: int
    due_offset: int
    size_bytes: int
    end_offset: int | None


def _since(segment: Segment, offset: int) -> Batches:
    position = segment.position_of(offset) if segment.base_offset < offset else 0
    return Batches(segment.file, position, max(offset, segment.base_offset), segment.size_bytes, segment.end_offset)


def replay(
    batches: Batches, replay_from: int, producers: ProducerState, now_ms: int, end_offset: int | None = None
) -> Iterator[AbortedTransaction]:
    """Add the batches between two offsets. Yield the transactions that they abort.

    A transaction whose marker is damaged stays open, because its outcome is unknown.
    """
    for position, header in _headers(batches):
        if end_offset is not None and header.base_offset >= end_offset:
            return
        if header.producer_id < 0 or header.base_offset < replay_from:
            continue
        if not header.is_control:
            producers.record(header, header.base_offset, now_ms)
            continue
        try:
            marker = read_marker(read_batch(batches.file, position))
        except InvalidBatchError as error:
            logger.error("%s: cannot read the marker at offset %d: %s", batches.file.path, header.base_offset, error)
            continue
        aborted = producers.end_transaction(header, marker, header.base_offset, now_ms)
        if aborted is not None:
            yield aborted


def _headers(batches: Batches) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of the batches, past damage."""
    file, position, due_offset, size_bytes, end_offset = batches
    try:
        for start, header in headers(file, position, size_bytes):
            yield start, header
            position, due_offset = start + header.size_bytes, header.end_offset
    except InvalidBatchError as error:
        logger.error("%s: the state of producers is restored without the damaged batches: %s", file.path, error)
        yield from scan_past_damage(file, position, due_offset, end_offset)
