"""A log with the state of its producers: their transactions, the last stable offset, and snapshots.

Every batch of a producer goes through `_note_producer`, whether a leader or a follower appends it. So the state is
always that of the log's end.
"""

from __future__ import annotations

import logging
from itertools import chain
from pathlib import Path

from skylog.model import TopicPartition
from skylog.records import HEADER_BYTES, BatchHeader, read_marker
from skylog.records.batch import CONTROL
from skylog.storage.admission import Batch
from skylog.storage.config import LogConfig
from skylog.storage.files import FileSlice
from skylog.storage.opening import OpenedLog
from skylog.storage.producer_snapshot import Snapshot, snapshot_offsets, snapshot_path, take_snapshot
from skylog.storage.readable_log import ReadableLog
from skylog.storage.soundness import Damage

logger = logging.getLogger(__name__)


class ProducerLog(ReadableLog):
    """The base of `Log` that knows producers and transactions."""

    def __init__(self, directory: Path, name: TopicPartition, config: LogConfig, opened: OpenedLog) -> None:
        super().__init__(directory, name, config, opened.segments, opened.log_start_offset, opened.log_end_offset)
        self.high_watermark = opened.log_end_offset
        self.producers = opened.producers
        self._unflushed = opened.unflushed
        self._may_have_aborted = any(segment.aborted for segment in opened.segments)

    @property
    def has_producers(self) -> bool:
        """Whether there is any state of producers: one of them, or a transaction whose marker may be cut off."""
        return bool(self.producers or self.producers.transactions.ended)

    @property
    def last_stable_offset(self) -> int:
        """The end of the batches that a read_committed reader may see: no open transaction begins below it.

        A transaction is open until its marker is replicated. One that began before the log's start counts from there.
        """
        high_watermark = self.high_watermark
        first_unstable = self.producers.transactions.first_unstable(high_watermark)
        if first_unstable is None:
            return high_watermark
        return min(max(first_unstable, self.log_start_offset), high_watermark)

    @property
    def uncommitted_damage(self) -> Damage | None:
        """Damage at or above the high watermark, if it was found. No other replica needs to have these batches."""
        for segment in self._segments.since(self.high_watermark):
            for damage in segment.soundness.damages:
                if damage.next_offset > self.high_watermark:
                    return damage
        return None

    def aborted_in(self, found: FileSlice, offset: int) -> list[tuple[int, int]]:
        """Return the aborted transactions of the batches in `found`, which were read from `offset` on.

        Each is a producer id with the first offset of its transaction. They are sorted by that offset.
        """
        if not self._may_have_aborted:
            return []
        entries = (entry for segment in self._segments.since(offset) for entry in segment.aborted.since(offset))
        earliest = next(entries, None)
        if earliest is None:
            return []
        first = BatchHeader.read(found.file.read(found.position, HEADER_BYTES)).base_offset
        end_offset = self._segments.find(first).end_of_slice(found)
        aborted: list[tuple[int, int]] = []
        for entry in chain((earliest,), entries):
            # A reader drops a producer's batches up to the marker. So a transaction whose marker is before the slice,
            # because compaction has emptied the batches between, must not be listed.
            if entry.first_offset < end_offset and entry.last_offset >= first:
                aborted.append((entry.first_offset, entry.producer_id))
            if entry.last_stable_offset >= end_offset:
                break
        return [(producer_id, first_offset) for first_offset, producer_id in sorted(aborted)]

    def _note_producer(self, batch: Batch, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Update the state of a producer with its batch at `base_offset`. `batch` may have more batches after it."""
        if header.attributes & CONTROL:
            aborted = self.producers.end_transaction(header, read_marker(batch), base_offset, now_ms)
            if aborted is not None:
                self._segments.active.aborted.append(aborted)
                self._may_have_aborted = True
            self.producers.transactions.first_unstable(self.high_watermark)  # forgets those that are replicated
        else:
            self.producers.record(header, base_offset, now_ms)

    # -- snapshots

    def _take_snapshot(self) -> Snapshot:
        """Return a snapshot of the producers at the log's end."""
        return take_snapshot(self.producers, self.directory, self.log_end_offset)

    def roll(self, now_ms: int) -> bool:
        """Like `ReadableLog.roll`, and take a snapshot of the producers, which the next flush writes."""
        is_new = super().roll(now_ms)
        if is_new:
            self._unflushed.add_roll(self.directory, self._take_snapshot())
            logger.debug("%s: rolled to offset %d", self.name, self.log_end_offset)
        return is_new

    def _write_snapshots(self) -> None:
        """Write the snapshots that wait for the next flush: the batches behind them are about to be dropped."""
        for snapshot in self._unflushed.snapshots:
            snapshot.write()
        self._unflushed.snapshots = []

    def _prune_snapshots(self, recovery_point: int) -> None:
        """Keep the newest snapshot that a recovery or a truncation could start from, and those after it."""
        end_offset = min(recovery_point, self.high_watermark)
        for offset in [offset for offset in snapshot_offsets(self.directory) if offset <= end_offset][:-1]:
            snapshot_path(self.directory, offset).unlink(missing_ok=True)
