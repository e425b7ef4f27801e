"""The log of one partition: segments in a directory, appended at one end and dropped at the other.

Offsets: `log_start_offset` is the first that can be read, and `log_end_offset` the next to be assigned. Batches below
`high_watermark` are replicated, and those below `last_stable_offset` belong to no open transaction either. Batches
below `recovery_point` are on disk. Watermarks lie between batches. Invariant: an appended batch is read back byte for
byte, at its offset, until retention drops it or `truncate_to` cuts it off.

A leader assigns offsets in `append_as_leader` and its variants. A follower keeps the leader's: `append_as_follower`.
Consumers, retention, compaction and DeleteRecords never reach beyond the high watermark.

Everything runs in one thread, except the methods that say otherwise and `FlushTask.run`, which waits for the disk.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from skylog.errors import SkylogError
from skylog.model import NO_TIMESTAMP, TopicPartition
from skylog.records import (
    BatchHeader,
    build_marker,
    check_batch,
    read_marker,
    stamp_append_time,
    stamp_offset,
)
from skylog.records.batch import CONTROL
from skylog.storage.aborted_index import Knowledge
from skylog.storage.admission import Admission, Admitted, Batch
from skylog.storage.config import FOREVER, LogConfig
from skylog.storage.durable_log import DurableLog
from skylog.storage.files import Buffer, FilePool
from skylog.storage.opening import open_log
from skylog.storage.producer_recovery import delete_snapshots, forget_producers, restore_producers
from skylog.storage.producer_state import ProducerState
from skylog.storage.segment import Segment
from skylog.storage.truncation import ProducerReplay, prepare_truncation

logger = logging.getLogger(__name__)

MAX_SEGMENT_OFFSETS: Final = 1 << 30  # an entry of the offset index has 31 bits for the offset


class AppendResult(NamedTuple):
    """Where a batch is stored. If `must_flush`, acknowledge it only after a flush up to `end_offset`.

    The offsets are those of this batch as long as the leader of `leader_epoch` leads.
    """

    base_offset: int
    end_offset: int
    log_append_time: int
    must_flush: bool
    is_duplicate: bool
    leader_epoch: int


class FailedWrite(NamedTuple):
    """A write that has failed: the end of the log, the epoch of its leader, and the reason."""

    end_offset: int
    leader_epoch: int
    reason: str


class Log(DurableLog):
    """One partition's log. Created by `LogDir`, used by the partition that owns it."""

    def __init__(
        self,
        directory: Path,
        name: TopicPartition,
        config: LogConfig,
        pool: FilePool,
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        first_dirty_offset: int = 0,
        topic_id: UUID | None = None,
        clean: bool = False,
        now_ms: int,
    ) -> None:
        opened = open_log(
            directory,
            pool,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            topic_id=topic_id,
            clean=clean,
            index_interval_bytes=config.index_interval_bytes,
            now_ms=now_ms,
        )
        super().__init__(directory, name, config, pool, opened, first_dirty_offset)
        self.topic_id = topic_id
        self._latest_epoch = self.epochs.latest
        self.rewriting = threading.Lock()  # held while bytes of a segment are overwritten or cut off
        self.truncations = 0
        self.replayed: ProducerReplay | None = None
        self._failed_write: FailedWrite | None = None
        if config.flush_messages != FOREVER and self.recovery_point < self.log_end_offset:
            # A crash of the process has left batches that are not on disk. Nobody may see them before they are.
            task = self.begin_flush()
            task.run()
            self.end_flush(task)

    def configure(self, config: LogConfig) -> None:
        """Use another configuration from now on."""
        super().configure(config)
        self.admission = Admission(config)
        # A plain log stores batches unopened and unchanged, and acknowledges them as soon as they are written.
        self.is_plain = (
            config.flush_messages == FOREVER and not config.is_log_append_time and not self.admission.opens_batches
        )
        # Settings that every append needs, as plain attributes.
        self._is_append_time = config.is_log_append_time
        self._index_interval_bytes = config.index_interval_bytes
        self._segment_bytes = config.segment_bytes
        self._segment_index_bytes = config.segment_index_bytes
        self._segment_ms = config.segment_ms
        if config.segment_jitter_ms:
            self._segment_ms -= random.randrange(min(config.segment_jitter_ms, config.segment_ms))

    # -- appending as a leader

    def append_as_leader(self, batch: Batch, leader_epoch: int, now_ms: int) -> AppendResult:
        """Store a client's batch. Its offset and epoch are written into the memory of `batch`.

        Raises KafkaError if the batch is not allowed, its producer is out of sequence, or the disk fails.
        """
        return self.append_admitted(self.admission.admit(batch, now_ms), leader_epoch, now_ms)

    def append_admitted(
        self, admitted: Admitted, leader_epoch: int, now_ms: int, verified_at: int | None = None
    ) -> AppendResult:
        """Store a batch that `admission` has admitted. Raises KafkaError like `append_as_leader`.

        `verified_at` lets it begin a transaction: see `ProducerState.find_duplicate`.
        """
        if self.failure is not None:
            raise self.failed()
        batch, header = admitted
        if header.producer_id >= 0:
            stored = self.producers.find_duplicate(header, verified_at)
            if stored is not None:
                self.producers.hear(header.producer_id, now_ms)
                time = stored.timestamp if self._is_append_time else NO_TIMESTAMP
                must_flush = self._must_flush() or (self.awaits_flush and stored.last_offset >= self.recovery_point)
                return AppendResult(stored.base_offset, stored.last_offset + 1, time, must_flush, True, leader_epoch)
        return self._append_at_end(batch, header, leader_epoch, now_ms)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commits: bool,
        coordinator_epoch: int,
        leader_epoch: int,
        now_ms: int,
    ) -> AppendResult:
        """End the transaction of a producer. Raises KafkaError for a marker that comes too late, or if the disk fails.

        A marker is stored even if the producer has no batches here: it may raise the producer's epoch.
        """
        if self.failure is not None:
            raise self.failed()
        self.producers.check_marker(producer_id, producer_epoch, coordinator_epoch)
        batch = build_marker(
            producer_id, producer_epoch, commits=commits, coordinator_epoch=coordinator_epoch, timestamp=now_ms
        )
        return self._append_at_end(batch, BatchHeader.read(batch), leader_epoch, now_ms)

    def _append_at_end(self, batch: Batch, header: BatchHeader, leader_epoch: int, now_ms: int) -> AppendResult:
        append_time = NO_TIMESTAMP
        if self._is_append_time:
            append_time = now_ms
            stamp_append_time(batch, now_ms, 0, len(batch))
            header = header._replace(max_timestamp=now_ms)
        base_offset = self.log_end_offset
        stamp_offset(batch, base_offset, leader_epoch)
        must_flush = self._write_batch(batch, header, base_offset, leader_epoch, now_ms)
        return AppendResult(base_offset, self.log_end_offset, append_time, must_flush, False, leader_epoch)

    def append_run(
        self, batches: Sequence[Buffer], length: int, rows: Sequence[tuple[int, int, int]], end_offset: int, now_ms: int
    ) -> bool:
        """Store clients' batches that are checked, and stamped from `log_end_offset` to `end_offset`, with one write.

        `rows` has length, base offset and largest timestamp of each. Return False, with nothing stored, if a segment
        must be rolled or the write fails. Then call `append_as_leader` for each batch; it raises the errors.
        """
        active = self._segments.active
        if self._is_roll_due(active, length, now_ms) or end_offset - active.base_offset > MAX_SEGMENT_OFFSETS:
            return False
        try:
            active.append_all(batches, length, rows, self._index_interval_bytes)
        except OSError:
            return False
        messages = end_offset - self.log_end_offset
        self.log_end_offset = end_offset
        self._note_unflushed(messages, now_ms)
        return True

    def takes_runs(self, leader_epoch: int) -> bool:
        """Whether `append_run` may be called: batches are stored as they are, and the epoch has begun."""
        return self.is_plain and self.failure is None and leader_epoch == self._latest_epoch

    def advance_high_watermark(self, offset: int) -> None:
        """Raise the high watermark to `offset`, at most to the log's end. It never moves back."""
        if offset > self.high_watermark:
            self.high_watermark = min(offset, self.log_end_offset)

    # -- appending and truncating as a follower

    def append_as_follower(self, data: memoryview, leader_epoch: int, now_ms: int) -> int:
        """Store whole batches from the leader of `leader_epoch` at their offsets. Return the offset after the last.

        Raises InvalidBatchError for a damaged batch, and SkylogError for one that does not continue the log or is of a
        later epoch than the one that was fetched from (KAFKA-18723). The batches before it are stored.

        The first batch of an empty log may begin before the log: the leader's log begins inside it.
        """
        if self.failure is not None:
            raise self.failed()
        start_offset = self.log_start_offset
        if start_offset == self.log_end_offset and len(data):
            self._make_room_before(data, now_ms)
        position, end_offset = 0, self.log_end_offset
        run: list[BatchHeader] = []
        start = 0
        invalid: SkylogError | None = None
        while position < len(data):
            try:
                header = check_batch(data, position)
                self._check_follows(header, end_offset, leader_epoch)
                if header.attributes & CONTROL:
                    read_marker(data[position:])
            except SkylogError as error:
                invalid = error
                break
            if header.partition_leader_epoch > self._latest_epoch:
                self._write_run(data[start:position], run, now_ms)
                run, start = [], position
                self._begin_epoch(header.partition_leader_epoch, header.base_offset)
            run.append(header)
            position += header.size_bytes
            end_offset = header.end_offset
        self._write_run(data[start:position], run, now_ms)
        self.log_start_offset = min(start_offset, self.log_end_offset)
        if invalid is not None:
            raise invalid
        return self.log_end_offset

    def _make_room_before(self, data: memoryview, now_ms: int) -> None:
        """Let an empty log begin where the batch begins that contains its start offset."""
        header = check_batch(data)
        if header.base_offset < self.log_end_offset < header.end_offset:
            for path in self.restart_at(header.base_offset, now_ms):
                path.unlink()

    def _check_follows(self, header: BatchHeader, end_offset: int, leader_epoch: int) -> None:
        epoch = header.partition_leader_epoch
        if header.base_offset < end_offset or not self._latest_epoch <= epoch <= leader_epoch:
            raise SkylogError(
                f"{self.name} ends at offset {end_offset} in epoch {self._latest_epoch}, but the leader of epoch "
                f"{leader_epoch} sent a batch at offset {header.base_offset} of epoch {epoch}"
            )

    def _write_run(self, data: memoryview, headers: Sequence[BatchHeader], now_ms: int) -> None:
        """Write consecutive batches, of one epoch, at their own offsets. Raises KafkaError; those before are stored."""
        active = self._segments.active
        if (
            len(headers) <= 1
            or self._is_roll_due(active, len(data), now_ms)
            or headers[-1].end_offset - active.base_offset > MAX_SEGMENT_OFFSETS
        ):
            position = 0
            for header in headers:
                batch = data[position : position + header.size_bytes]
                self._write_batch(batch, header, header.base_offset, header.partition_leader_epoch, now_ms)
                position += header.size_bytes
            return
        rows = [(header.size_bytes, header.base_offset, header.max_timestamp) for header in headers]
        try:
            active.append_all([data], len(data), rows, self._index_interval_bytes)
        except OSError as error:
            raise self._storage_error(error) from error
        messages = position = 0
        for header in headers:
            messages += header.record_count
            if header.producer_id >= 0:
                self._note_producer(data[position:], header, header.base_offset, now_ms)
            position += header.size_bytes
        self.log_end_offset = headers[-1].end_offset
        self._note_unflushed(messages, now_ms)

    def restart_at(self, offset: int, now_ms: int) -> list[Path]:
        """Drop everything and begin at `offset`: the leader no longer has what follows. Return the files to unlink.

        The watermarks move with the start (KAFKA-9491). Producers are unknown: the batches that are missing may have
        been theirs. Raises OSError.
        """
        base_offset = self._segments.base_offset
        paths = self.truncate_to(base_offset, now_ms)
        with self._failing_half_way("truncation"):
            with self.rewriting:
                paths += self._segments.restart_at(offset, now_ms)
            self.log_start_offset = self.log_end_offset = self.high_watermark = offset
            self.recovery_point = self.first_dirty_offset = offset
            self._unflushed.truncate_to(min(base_offset, offset), self.directory)
            self.truncations += 1
            self.producers = forget_producers(self.directory)
        self._truncate_epochs(0)
        logger.info("%s: begins again at offset %d", self.name, offset)
        return paths

    def restore_high_watermark(self, offset: int) -> None:
        """Lower the high watermark of a log that was just opened to the last known one, or to the log's start."""
        self.high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)

    def prepare_truncation(self, offset: int, now_ms: int) -> None:
        """Raise UncheckedError if a truncation to `offset` would hold the event loop. Call this before. KafkaError."""
        prepare_truncation(self, offset, now_ms, self._pool.open_file)

    def truncate_to(self, offset: int, now_ms: int) -> list[Path]:
        """Cut off all batches from `offset` on, the start of a batch. Return the files to unlink. Raises OSError.

        Epochs that began there are removed, even if there are no batches to cut off (KAFKA-10706). What is appended
        next goes to another file: a reader that holds a slice of the old one never gets the new batches in its place.
        """
        if offset >= self.log_end_offset:
            self._truncate_epochs(offset)
            return []
        with self._failing_half_way("truncation"):
            replayed = self._take_replayed(offset)
            with self.rewriting:
                self.truncations += 1
                paths = self._segments.truncate_to(offset, self._index_interval_bytes, now_ms)
            self.log_end_offset = offset
            self.log_start_offset = min(self.log_start_offset, offset)
            self.high_watermark = min(self.high_watermark, offset)
            self.recovery_point = min(self.recovery_point, offset)
            self.first_dirty_offset = min(self.first_dirty_offset, offset)
            self._unflushed.truncate_to(offset, self.directory)
            self.producers = self._producers_at(offset, replayed, now_ms)
            self.roll(now_ms)
        logger.info("%s: truncated to offset %d", self.name, offset)
        self._truncate_epochs(offset)  # last: if something fails before, the leader finds the difference again
        return paths

    def _take_replayed(self, offset: int) -> ProducerState | None:
        """Return the producers at `offset` if they are known: none at all, or as `prepare_truncation` has found."""
        replayed, self.replayed = self.replayed, None
        if replayed is not None and replayed.is_for(self, offset):
            return replayed.producers
        return None if self.has_producers else ProducerState()

    def _producers_at(self, offset: int, replayed: ProducerState | None, now_ms: int) -> ProducerState:
        """Return the producers of the truncated log. If its index of aborted transactions is lost, restore that too."""
        if replayed is None or self._segments.active.aborted.knowledge is Knowledge.LOST:
            return restore_producers(self.directory, list(self._segments), offset, now_ms)
        delete_snapshots(self.directory, offset)
        return replayed

    def _truncate_epochs(self, offset: int) -> None:
        self.epochs.truncate_to(offset)
        self._latest_epoch = self.epochs.latest

    # -- writing

    def _write_batch(self, batch: Batch, header: BatchHeader, base_offset: int, leader_epoch: int, now_ms: int) -> bool:
        """Write a batch at its final offset and epoch. Return whether a flush is due. Raises KafkaError if it fails."""
        active = self._segments.active
        try:
            if self._is_roll_due(active, len(batch), now_ms):
                self.roll(now_ms)
                active = self._segments.active
            if leader_epoch > self._latest_epoch:
                self._begin_epoch(leader_epoch, base_offset)
            active.append(batch, base_offset, header.max_timestamp, self._index_interval_bytes)
        except OSError as error:
            self.note_failed_write(leader_epoch, error)
            raise self._storage_error(error) from error
        self.log_end_offset = base_offset + header.last_offset_delta + 1
        if header.producer_id >= 0:
            self._note_producer(batch, header, base_offset, now_ms)
        return self._note_unflushed(header.record_count, now_ms)

    def note_failed_write(self, leader_epoch: int, error: OSError) -> None:
        """Remember that a write to one of the log's files has failed, and may succeed later."""
        self._failed_write = FailedWrite(self.log_end_offset, leader_epoch, str(error))

    def write_failure(self, leader_epoch: int) -> str | None:
        """Return why the last write in a leader epoch has failed; None if it has not, or the log has changed since."""
        failed = self._failed_write
        if failed is None or (failed.end_offset, failed.leader_epoch) != (self.log_end_offset, leader_epoch):
            return None
        return failed.reason

    def _begin_epoch(self, epoch: int, start_offset: int) -> None:
        self.epochs.begin(epoch, start_offset)
        self._latest_epoch = epoch

    def _is_roll_due(self, active: Segment, length: int, now_ms: int) -> bool:
        """Return whether `length` more bytes need a new segment. An empty one is rolled too: its age starts again."""
        return (
            not active.size_bytes
            or active.size_bytes + length > self._segment_bytes
            or now_ms - self._segments.active_since_ms >= self._segment_ms
            or active.index_bytes >= self._segment_index_bytes
            or self.log_end_offset - active.base_offset > MAX_SEGMENT_OFFSETS
        )
