"""The log of one partition: segments in a directory, appended to at one end and dropped at the other.

Offsets: `log_start_offset` is the first that may be read, `log_end_offset` the next that will be given out, and
`recovery_point` the first that may not be on disk yet. Segments cover the range without overlap; the last one is
active. Invariant: what has been appended is read back byte for byte, at its offset, until retention drops it.

Everything here runs in one thread, but for `FlushTask.run`, which waits for the disk and so runs elsewhere.
"""

from __future__ import annotations

import logging
import random
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from skylog.errors import ErrorCode, KafkaError
from skylog.model import NO_TIMESTAMP, TopicPartition
from skylog.records import BatchHeader, InvalidBatchError, stamp_append_time, stamp_offset
from skylog.records.record import read_records
from skylog.storage.admission import Admission, Batch
from skylog.storage.config import LogConfig
from skylog.storage.files import FilePool, FileSlice, LogFile, sync_directory
from skylog.storage.leader_epochs import LeaderEpochs
from skylog.storage.producer_state import snapshot_offsets, snapshot_path
from skylog.storage.recovery import recover, repair_indexes, restore_producers
from skylog.storage.segment import Segment, segment_bases

logger = logging.getLogger(__name__)


class AppendResult(NamedTuple):
    """Where a batch lies. `must_flush` asks the caller to acknowledge only once the log is on disk up to it."""

    base_offset: int
    end_offset: int
    log_append_time: int
    must_flush: bool
    is_duplicate: bool


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class FlushTask:
    """What must reach the disk for a log to be safe up to `end_offset`. `run` blocks; call it in another thread."""

    directory: Path
    files: list[LogFile]
    closed: list[Segment]
    end_offset: int

    def run(self) -> None:
        for file in self.files:
            file.sync()
        for segment in self.closed:
            segment.sync_indexes()
        if self.closed:
            sync_directory(self.directory)


class Log:
    """One partition's log. Made by `LogDir`, used by the partition that owns it."""

    def __init__(
        self,
        directory: Path,
        name: TopicPartition,
        config: LogConfig,
        pool: FilePool,
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean: bool = False,
        now_ms: int,
    ) -> None:
        self.directory = directory
        self.name = name
        self.failure: KafkaError | None = None
        self.unlinked: list[Path] = []
        self._pool = pool
        self.configure(config)
        self.epochs = LeaderEpochs(directory)
        self._segments = self._open_segments(log_start_offset)
        if clean:
            repair_indexes(self._segments, config.index_interval_bytes)
        else:
            self.unlinked += recover(self._segments, recovery_point, self.epochs, config.index_interval_bytes)
        self._bases = [segment.base_offset for segment in self._segments]
        self._active = self._segments[-1]
        self.log_end_offset = self._find_end_offset(clean)
        self.log_start_offset = min(max(log_start_offset, self._bases[0]), self.log_end_offset)
        self.recovery_point = self.log_end_offset if clean else min(recovery_point, self.log_end_offset)
        self.producers = restore_producers(directory, self._segments, self.log_end_offset, self.log_end_offset)
        self._active.activate()
        self._latest_epoch = self.epochs.latest
        self._rolled_ms = now_ms
        self._unflushed_messages = 0
        self.unflushed_since_ms: int | None = None

    def _open_segments(self, log_start_offset: int) -> list[Segment]:
        self.directory.mkdir(exist_ok=True)
        segments = [Segment(self.directory, base_offset, self._pool) for base_offset in segment_bases(self.directory)]
        return segments or [Segment(self.directory, log_start_offset, self._pool, create=True)]

    def _find_end_offset(self, clean: bool) -> int:
        """After a clean stop the producers' snapshot has it in its name; otherwise the last batch tells."""
        active = self._active
        if clean and (offsets := snapshot_offsets(self.directory)) and offsets[-1] >= active.base_offset:
            return offsets[-1]
        end_offset = active.base_offset
        for _, header in active.headers(active.offset_index.boundary(active.size_bytes)):
            end_offset = header.end_offset
        return end_offset

    # -- facts

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    def configure(self, config: LogConfig) -> None:
        """Use another configuration from now on."""
        self.config = config
        self._admission = Admission(config)
        self._segment_ms = config.segment_ms
        if config.segment_jitter_ms:
            self._segment_ms -= random.randrange(min(config.segment_jitter_ms, config.segment_ms))

    # -- appending

    def append(self, batch: Batch, leader_epoch: int, now_ms: int) -> AppendResult:
        """Store a client's batch, in whose memory the offset and the epoch are written.

        Raises KafkaError: for a batch that may not be stored, a producer out of sequence, a disk that fails.
        """
        if self.failure is not None:
            raise self.failure
        batch, header = self._admission.admit(batch, now_ms)
        config = self.config
        if header.producer_id >= 0:
            stored = self.producers.find_duplicate(header)
            if stored is not None:
                time = stored.timestamp if config.is_log_append_time else NO_TIMESTAMP
                return AppendResult(stored.base_offset, stored.last_offset + 1, time, self._flushes(0), True)
        max_timestamp, append_time = header.max_timestamp, NO_TIMESTAMP
        if config.is_log_append_time:
            max_timestamp = append_time = now_ms
            stamp_append_time(batch, now_ms, 0, len(batch))
            header = header._replace(max_timestamp=now_ms)
        base_offset = self.log_end_offset
        stamp_offset(batch, base_offset, leader_epoch)
        try:
            if self._must_roll(len(batch), now_ms):
                self.roll(now_ms)
            if leader_epoch > self._latest_epoch:
                self.epochs.begin(leader_epoch, base_offset)
                self._latest_epoch = leader_epoch
            self._active.append(batch, base_offset, max_timestamp, config)
        except OSError as error:
            raise _storage_error(self.directory, error) from error
        self.log_end_offset = end_offset = base_offset + header.last_offset_delta + 1
        if header.producer_id >= 0:
            self.producers.record(header, base_offset)
        if self.unflushed_since_ms is None:
            self.unflushed_since_ms = now_ms
        return AppendResult(base_offset, end_offset, append_time, self._flushes(header.record_count), False)

    def _flushes(self, messages: int) -> bool:
        self._unflushed_messages += messages
        return self._unflushed_messages >= self.config.flush_messages or self.config.flush_messages == 1

    def _must_roll(self, batch_bytes: int, now_ms: int) -> bool:
        active, config = self._active, self.config
        if not active.size_bytes:
            return False
        return (
            active.size_bytes + batch_bytes > config.segment_bytes
            or now_ms - self._rolled_ms >= self._segment_ms
            or active.offset_index.size_bytes >= config.segment_index_bytes
            or active.time_index.size_bytes >= config.segment_index_bytes
            or self.log_end_offset - active.base_offset > 0x3FFFFFFF
        )

    def roll(self, now_ms: int) -> None:
        """Close the active segment and begin one at the log's end."""
        segment = Segment(self.directory, self.log_end_offset, self._pool, create=True)
        self._active.close()
        self.producers.save(self.directory, self.log_end_offset)
        self._prune_snapshots()
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self._active = segment
        self._rolled_ms = now_ms
        logger.debug("%s: rolled to offset %d", self.name, segment.base_offset)

    def _prune_snapshots(self) -> None:
        """Keep the newest snapshot that a recovery could start from, and those after it."""
        for offset in [offset for offset in snapshot_offsets(self.directory) if offset <= self.recovery_point][:-1]:
            snapshot_path(self.directory, offset).unlink()

    # -- flushing

    @property
    def has_unflushed_segments(self) -> bool:
        """Whether a closed segment still waits for the disk."""
        return self.recovery_point < self._active.base_offset

    def begin_flush(self) -> FlushTask:
        """What has to be written for everything appended so far to be safe."""
        first = max(bisect_right(self._bases, self.recovery_point) - 1, 0)
        waiting = self._segments[first:]
        self._unflushed_messages = 0
        self.unflushed_since_ms = None
        return FlushTask(self.directory, [segment.file for segment in waiting], waiting[:-1], self.log_end_offset)

    def end_flush(self, task: FlushTask, error: OSError | None = None) -> None:
        """Note how `task` went. After a failed fsync nobody knows what is on disk: the log takes no more appends."""
        if error is not None:
            self.failure = _storage_error(self.directory, error)
            logger.error("%s: fsync failed, no more appends until a restart: %s", self.name, error)
        elif task.end_offset > self.recovery_point:
            self.recovery_point = min(task.end_offset, self.log_end_offset)

    # -- reading

    def read(self, offset: int, max_bytes: int, at_least_one: bool = True) -> FileSlice | None:
        """Whole batches from the one that holds `offset` on, from one segment; None at the end of the log.

        `at_least_one` lets the first batch be larger than `max_bytes`: a reader could never get past it otherwise.
        Raises OFFSET_OUT_OF_RANGE, and CORRUPT_MESSAGE where the first batch is damaged.
        """
        if offset >= self.log_end_offset or offset < self.log_start_offset:
            if offset == self.log_end_offset:
                return None
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name} holds offsets {self.log_start_offset} to {self.log_end_offset}, not {offset}",
            )
        active = self._active
        try:
            if offset >= active.base_offset:
                found = self._read_segment(active, offset, max_bytes, at_least_one)
                if found.position + found.length == active.size_bytes:
                    active.remember_end(self.log_end_offset)
                return found
            for segment in self._segments[bisect_right(self._bases, offset) - 1 :]:
                found = self._read_segment(segment, offset, max_bytes, at_least_one)
                if found.length or not at_least_one:
                    return found
        except OSError as error:
            raise _storage_error(self.directory, error) from error
        return None

    def _read_segment(self, segment: Segment, offset: int, max_bytes: int, at_least_one: bool) -> FileSlice:
        try:
            return segment.read(offset, max_bytes, at_least_one)
        except InvalidBatchError as error:
            # Either the log or the index that led there is damaged. The index can be made again, once.
            if not segment.indexes_rebuilt:
                logger.warning("%s: making the indexes again after: %s", segment.path, error)
                segment.rebuild_indexes(self.config.index_interval_bytes)
                return self._read_segment(segment, offset, max_bytes, at_least_one)
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{segment.path}: {error}") from error

    def find_time(self, timestamp: int) -> TimestampOffset | None:
        """The first record at or after `timestamp`; None where there is none."""
        for segment in self._segments:
            if segment.max_timestamp < timestamp:
                continue
            start = segment.time_index.lookup(timestamp)
            for position, header in segment.headers(0 if start is None else segment.position_of(start)):
                if header.max_timestamp >= timestamp:
                    for record in read_records(segment.read_batch(position)):
                        if record.timestamp >= timestamp and record.offset >= self.log_start_offset:
                            return TimestampOffset(record.timestamp, record.offset, header.partition_leader_epoch)
        return None

    def find_max_timestamp(self) -> TimestampOffset | None:
        """The first record that carries the largest timestamp."""
        segment = max(self._segments, key=lambda each: each.max_timestamp)
        return self.find_time(segment.max_timestamp) if segment.max_timestamp >= 0 else None

    # -- dropping

    def delete_records(self, before_offset: int) -> None:
        """Let the log begin at `before_offset`. Whole segments below it go with the next retention run."""
        if before_offset > self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name} ends at offset {self.log_end_offset}, cannot begin at {before_offset}",
            )
        self.log_start_offset = max(self.log_start_offset, before_offset)

    def drop_expired(self, now_ms: int) -> list[Path]:
        """Drop the oldest segments that the retention settings no longer cover; the files to be unlinked."""
        count = self._count_expired(now_ms)
        if count == len(self._segments):
            if not self._active.size_bytes:
                count -= 1
            else:
                self.roll(now_ms)
        dropped = [path for segment in self._segments[:count] for path in segment.remove()]
        if count:
            logger.info("%s: retention drops %d segments below offset %d", self.name, count, self._bases[count])
            del self._segments[:count], self._bases[:count]
            self.log_start_offset = max(self.log_start_offset, self._bases[0])
        paths, self.unlinked = self.unlinked + dropped, []
        return paths

    def _count_expired(self, now_ms: int) -> int:
        """How many segments from the oldest on may go."""
        config = self.config
        excess = self.size_bytes - config.retention_bytes
        count = 0
        for index, segment in enumerate(self._segments):
            next_base = self._bases[index + 1] if index + 1 < len(self._bases) else self.log_end_offset
            expired = next_base <= self.log_start_offset and segment is not self._active
            if "delete" in config.cleanup_policy and not expired:
                if config.retention_ms >= 0:
                    expired = now_ms - segment.newest_ms() > config.retention_ms
                if config.retention_bytes >= 0 and excess >= segment.size_bytes and segment is not self._active:
                    expired = True
            if not expired:
                break
            excess -= segment.size_bytes
            count += 1
        return count

    def close(self) -> None:
        """Write out everything that makes the next opening cheap. The caller has flushed the data."""
        self._active.close()
        self._active.sync_indexes()
        self.producers.save(self.directory, self.log_end_offset)
        for offset in snapshot_offsets(self.directory)[:-1]:
            snapshot_path(self.directory, offset).unlink()

    def batches(self, offset: int) -> list[BatchHeader]:
        """Headers of the batches from `offset` to the end of its segment: for tools and tests."""
        segment = self._segments[max(bisect_right(self._bases, offset) - 1, 0)]
        return [header for _, header in segment.headers(segment.position_of(offset))]


def _storage_error(directory: Path, error: OSError) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory}: {error}")
