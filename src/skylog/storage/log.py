"""The log of one partition: segments in a directory, appended to at one end and dropped at the other.

Offsets: `log_start_offset` is the first that may be read, `log_end_offset` the next that will be given out, and
`recovery_point` the first that may not be on disk yet. Segments cover the range without overlap, each up to where the
next one begins; the last one is active. Invariant: what has been appended is read back byte for byte, at its offset,
until retention drops it.

Everything here runs in one thread, but for `FlushTask.run`, which waits for the disk and so runs elsewhere.
"""

from __future__ import annotations

import logging
import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from skylog.errors import ErrorCode, KafkaError
from skylog.model import NO_TIMESTAMP, TopicPartition
from skylog.records import HEADER_BYTES, BatchHeader, InvalidBatchError, stamp_append_time, stamp_offset
from skylog.storage.admission import Admission, Admitted, Batch, opening_limit_bytes
from skylog.storage.cleaner import CleanedSegment, CleanJob
from skylog.storage.compaction import finish_swaps, move_in, plan, swap_path
from skylog.storage.config import FOREVER, LogConfig
from skylog.storage.empty_runs import PASSED_AT_ONCE, RUN_BYTES, EmptyRunCheck, pass_over
from skylog.storage.files import FilePool, FileSlice
from skylog.storage.flush_task import FlushTask
from skylog.storage.folder_name import FolderName
from skylog.storage.index_rebuild import IndexRebuild
from skylog.storage.leader_epochs import LeaderEpochs
from skylog.storage.partition_metadata import FILE_NAME as PARTITION_METADATA
from skylog.storage.partition_metadata import read_topic_id, write_topic_id
from skylog.storage.producer_state import Snapshot, snapshot_offsets, snapshot_path
from skylog.storage.recovery import recover, repair_indexes, restore_producers
from skylog.storage.retention import count_expired
from skylog.storage.segment import REMOVED_SUFFIX, Segment, segment_bases
from skylog.storage.soundness import Check, Damage, UncheckedError
from skylog.storage.time_search import TimeSearch, TimestampOffset, search_segment

logger = logging.getLogger(__name__)

MAX_SEGMENT_OFFSETS: Final = 1 << 30  # an entry of the offset index has 31 bits for the offset


class AppendResult(NamedTuple):
    """Where a batch lies. `must_flush` asks the caller to acknowledge only once the log is on disk up to it."""

    base_offset: int
    end_offset: int
    log_append_time: int
    must_flush: bool
    is_duplicate: bool


class Log:
    """One partition's log. Made by `LogDir`, used by the partition that owns it.

    `failure` says why the log takes no more appends, `is_retired` that its topic was deleted: its folder may have been
    renamed, and the old name may belong to another log.
    """

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
        self.directory = directory
        self.name = name
        self.failure: str | None = None
        self.is_retired = False
        self.folder_name = FolderName()
        self._pool = pool
        self.configure(config)
        self._new_names = self._open_directory()
        self._new_side_files = self._identify(topic_id)
        self.epochs = LeaderEpochs(directory)
        self._segments = self._open_segments(log_start_offset)
        snapshots = snapshot_offsets(directory)
        # A clean stop leaves a snapshot of the producers at the log's end: its name saves looking for the end.
        self._is_as_closed = False
        if clean and snapshots and snapshots[-1] >= self._segments[-1].base_offset:
            self.recovery_point = self.log_end_offset = snapshots[-1]
            self._is_as_closed = all(segment.has_sealed_indexes() for segment in self._segments)
            repair_indexes(self._segments, config.index_interval_bytes)
        else:
            self.log_end_offset = recover(self._segments, recovery_point, self.epochs, config.index_interval_bytes)
            self.recovery_point = min(recovery_point, self.log_end_offset)
        self._bases = [segment.base_offset for segment in self._segments]
        self._active = self._segments[-1]
        for segment, end_offset in zip(self._segments, [*self._bases[1:], self.log_end_offset], strict=True):
            segment.take_as_found(end_offset)
        self.log_start_offset = min(max(log_start_offset, self._bases[0]), self.log_end_offset)
        self.first_dirty_offset = min(first_dirty_offset, self.log_end_offset)
        self.producers = restore_producers(directory, self._segments, self.log_end_offset, now_ms)
        self._active.activate()
        self._latest_epoch = self.epochs.latest
        self._snapshots: list[Snapshot] = []  # of rolled segments, to be written with the next flush
        self._rolled_ms = now_ms
        self._unflushed_messages = 0
        self.unflushed_since_ms: int | None = None
        self._gone_bytes = -self.size_bytes

    def _open_directory(self) -> list[Path]:
        """Make the directory, or clear it of what was on its way out; the directories whose names changed."""
        if not self.directory.exists():
            self.directory.mkdir()
            return [self.directory.parent, self.directory]
        for path in self.directory.iterdir():
            if path.suffix in (REMOVED_SUFFIX, ".tmp"):
                path.unlink()
        finish_swaps(self.directory)
        return [self.directory]

    def _identify(self, topic_id: UUID | None) -> list[Path]:
        """Write the topic's id into the folder unless it is there; the file if it is new."""
        if topic_id is None or read_topic_id(self.directory) == topic_id:
            return []
        write_topic_id(self.directory, topic_id)
        return [self.directory / PARTITION_METADATA]

    def _open_segments(self, log_start_offset: int) -> list[Segment]:
        segments = [Segment(self.directory, base_offset, self._pool) for base_offset in segment_bases(self.directory)]
        return segments or [Segment(self.directory, log_start_offset, self._pool, create=True)]

    # -- facts

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def appended_bytes(self) -> int:
        """Bytes that were appended since the log was opened: what it has grown by, and what it has lost since."""
        return self.size_bytes + self._gone_bytes

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    def configure(self, config: LogConfig) -> None:
        """Use another configuration from now on."""
        self.config = config
        self.admission = Admission(config)
        # A plain log opens no batch, changes nothing in it, and lets it be acknowledged as soon as it is written.
        self.is_plain = (
            config.flush_messages == FOREVER and not config.is_log_append_time and not self.admission.opens_batches
        )
        # What every append asks for is kept at hand.
        self._is_append_time = config.is_log_append_time
        self._is_compacted = config.is_compacted
        self._flush_messages = config.flush_messages
        self._index_interval_bytes = config.index_interval_bytes
        self._segment_bytes = config.segment_bytes
        self._segment_index_bytes = config.segment_index_bytes
        self._segment_ms = config.segment_ms
        if config.segment_jitter_ms:
            self._segment_ms -= random.randrange(min(config.segment_jitter_ms, config.segment_ms))

    # -- appending

    def append(self, batch: Batch, leader_epoch: int, now_ms: int) -> AppendResult:
        """Store a client's batch, in whose memory the offset and the epoch are written.

        Raises KafkaError: for a batch that may not be stored, a producer out of sequence, a disk that fails.
        """
        return self.append_admitted(self.admission.admit(batch, now_ms), leader_epoch, now_ms)

    def append_admitted(self, admitted: Admitted, leader_epoch: int, now_ms: int) -> AppendResult:
        """Store a batch that `admission` has let in. Raises KafkaError like `append`."""
        if self.failure is not None:
            raise self.failed()
        batch, header = admitted
        is_idempotent = header.producer_id >= 0
        if is_idempotent:
            stored = self.producers.find_duplicate(header)
            if stored is not None:
                self.producers.hear(header.producer_id, now_ms)
                time = stored.timestamp if self._is_append_time else NO_TIMESTAMP
                return AppendResult(stored.base_offset, stored.last_offset + 1, time, self._flushes(0), True)
        max_timestamp, append_time = header.max_timestamp, NO_TIMESTAMP
        if self._is_append_time:
            max_timestamp = append_time = now_ms
            stamp_append_time(batch, now_ms, 0, len(batch))
            header = header._replace(max_timestamp=now_ms)
        base_offset = self.log_end_offset
        stamp_offset(batch, base_offset, leader_epoch)
        active = self._active
        try:
            if self._is_roll_due(active, len(batch), now_ms):
                self.roll(now_ms)
                active = self._active
            if leader_epoch > self._latest_epoch:
                self.epochs.begin(leader_epoch, base_offset)
                self._latest_epoch = leader_epoch
            active.append(batch, base_offset, max_timestamp, self._index_interval_bytes)
        except OSError as error:
            raise _storage_error(self.directory, error) from error
        self.log_end_offset = end_offset = base_offset + header.last_offset_delta + 1
        if is_idempotent:
            self.producers.record(header, base_offset, now_ms)
        if self.unflushed_since_ms is None:
            self.unflushed_since_ms = now_ms
        return AppendResult(base_offset, end_offset, append_time, self._flushes(header.record_count), False)

    def append_all(self, batches: Sequence[Batch], leader_epoch: int, now_ms: int) -> list[int] | None:
        """Store several clients' batches with one write; their base offsets.

        None, with nothing stored, where anything is out of the ordinary: a batch that needs a closer look, a segment
        to be rolled, a write that fails. `append` then does each by itself, and says what is wrong with which.
        """
        active = self._active
        if not self.is_plain or self.failure is not None or leader_epoch != self._latest_epoch or not active.size_bytes:
            return None
        base_offset = self.log_end_offset
        offsets, rows = [], []
        length = messages = 0
        for batch in batches:
            header = self.admission.admits_as_is(batch)
            if header is None:
                return None
            stamp_offset(batch, base_offset, leader_epoch)
            offsets.append(base_offset)
            rows.append((len(batch), base_offset, header.max_timestamp))
            length += len(batch)
            messages += header.record_count
            base_offset += header.record_count
        if self._is_roll_due(active, length, now_ms):
            return None
        try:
            active.append_all(batches, length, rows, self._index_interval_bytes)
        except OSError:
            return None
        self.log_end_offset = base_offset
        self._unflushed_messages += messages
        if self.unflushed_since_ms is None:
            self.unflushed_since_ms = now_ms
        return offsets

    def _is_roll_due(self, active: Segment, length: int, now_ms: int) -> bool:
        """Whether `length` more bytes want another segment; an empty one is rolled too, which starts its time."""
        return (
            not active.size_bytes
            or active.size_bytes + length > self._segment_bytes
            or now_ms - self._rolled_ms >= self._segment_ms
            or active.index_bytes >= self._segment_index_bytes
            or self.log_end_offset - active.base_offset > MAX_SEGMENT_OFFSETS
        )

    def _flushes(self, messages: int) -> bool:
        self._unflushed_messages = unflushed = self._unflushed_messages + messages
        return unflushed >= self._flush_messages or self._flush_messages == 1

    def roll(self, now_ms: int) -> None:
        """Close the active segment and begin one at the log's end; the time of an empty one begins anew instead.

        Raises OSError where no file can be made, and then goes on with the old one. What else a full disk prevents,
        the next start makes good.
        """
        closing = self._active
        if not closing.size_bytes:
            self._rolled_ms = now_ms
            return
        segment = Segment(self.directory, self.log_end_offset, self._pool, create=True)
        try:
            self._seal(closing)
        except OSError as error:
            logger.warning("%s: rolled without all of its indexes: %s", self.name, error)
        self._snapshots.append(self.producers.snapshot(self.directory, self.log_end_offset))
        closing.end_offset = segment.base_offset
        closing.close()
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self._active = segment
        self._rolled_ms = now_ms
        if self.directory not in self._new_names:
            self._new_names.append(self.directory)
        logger.debug("%s: rolled to offset %d", self.name, segment.base_offset)

    def _seal(self, segment: Segment) -> None:
        """Write the indexes of a segment out, unless they are damaged: then they are made again when it is read."""
        if segment.has_intact_indexes() and not segment.has_sealed_indexes():
            segment.seal()

    def _prune_snapshots(self, recovery_point: int) -> None:
        """Keep the newest snapshot that a recovery could start from, and those after it."""
        for offset in [offset for offset in snapshot_offsets(self.directory) if offset <= recovery_point][:-1]:
            snapshot_path(self.directory, offset).unlink(missing_ok=True)

    # -- flushing

    @property
    def has_unflushed_segments(self) -> bool:
        """Whether a closed segment still waits for the disk."""
        return self.recovery_point < self._active.base_offset

    def begin_flush(self) -> FlushTask:
        """What has to be written for everything appended so far to be safe. Never raises: the task does, when run."""
        first = max(bisect_right(self._bases, self.recovery_point) - 1, 0)
        waiting = self._segments[first:] if not self.is_retired else []  # its paths may be another log's by now
        error = None
        files = []
        try:
            files = [segment.file for segment in waiting]
        except OSError as failed:
            error = failed
        side_files = [*self._new_side_files, *([self.epochs.path] if self.epochs.unsynced else [])]
        task = FlushTask(
            self.log_end_offset,
            files,
            waiting[:-1],
            side_files,
            self._new_names,
            self._snapshots,
            self.folder_name,
            error,
        )
        self.epochs.unsynced = False
        self._new_side_files = []
        self._new_names = []
        self._snapshots = []
        self._unflushed_messages = 0
        self.unflushed_since_ms = None
        return task

    def end_flush(self, task: FlushTask, error: OSError | None = None) -> None:
        """Note how `task` went. After a failed fsync nobody knows what is on disk: the log takes no more appends."""
        if self.is_retired:
            return
        if error is not None:
            self.failure = f"{self.directory}: {error}"
            logger.error("%s: fsync failed, no more appends until a restart: %s", self.name, error)
        elif task.end_offset > self.recovery_point:
            self.recovery_point = min(task.end_offset, self.log_end_offset)
            if task.snapshots:
                self._prune_snapshots(self.recovery_point)

    def failed(self) -> KafkaError:
        """Why the log takes no appends. A new exception each time: a stored one would collect tracebacks."""
        if self.is_retired:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.name} was deleted")
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.failure}; no more appends until a restart")

    # -- reading

    def read(self, offset: int, max_bytes: int, at_least_one: bool = True) -> FileSlice | None:
        """Like `read_checked`, and checks what has to be: this may take long."""
        while True:
            try:
                return self.read_checked(offset, max_bytes, at_least_one)
            except UncheckedError as unchecked:
                self.run_check(unchecked.check)
                unchecked.check.finish()

    def read_checked(self, offset: int, max_bytes: int, at_least_one: bool = True) -> FileSlice | None:
        """Whole batches from the one that holds `offset` on, from one segment; None at the end of the log.

        `at_least_one` lets the first batch be larger than `max_bytes`: a reader could never get past it otherwise.
        Batches that compaction has emptied are passed over: librdkafka takes an answer of nothing else for one that is
        cut. Raises OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE where the first batch is damaged, and UncheckedError where
        batches that were found in the files have to be checked first.
        """
        found = self._read(offset, max_bytes, at_least_one)
        while self._is_compacted and found is not None and found.length:
            next_offset = self._offset_after_empty(found)
            if next_offset is None:
                break
            found = self._read(next_offset, max_bytes, at_least_one)
        return found

    def _offset_after_empty(self, found: FileSlice) -> int | None:
        """Where to read on if `found` begins with emptied batches. Raises UncheckedError where there are many."""
        header = BatchHeader.read(found.file.read(found.position, HEADER_BYTES))
        if header.record_count:
            return None
        runs = self._segments[bisect_right(self._bases, header.base_offset) - 1].empty_runs
        known = runs.next_offset(found.position)
        if known is not None:
            return known
        batches = self._read(header.base_offset, RUN_BYTES, True)  # no matter how little the reader wants
        assert batches is not None
        passed = pass_over(batches, self.log_end_offset, PASSED_AT_ONCE)
        if passed is None:
            return None
        if not passed.is_whole:
            raise UncheckedError(EmptyRunCheck(runs, batches, self.log_end_offset))
        return passed.next_offset

    def _read(self, offset: int, max_bytes: int, at_least_one: bool) -> FileSlice | None:
        if self.is_retired:
            raise self.failed()
        if offset >= self.log_end_offset or offset < self.log_start_offset:
            if offset == self.log_end_offset:
                return None
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name} holds offsets {self.log_start_offset} to {self.log_end_offset}, not {offset}",
            )
        active = self._active
        segment = active if offset >= active.base_offset else self._segments[bisect_right(self._bases, offset) - 1]
        try:
            if not segment.indexes_checked:
                self._check_indexes(segment)
            found = segment.read(offset, max_bytes, at_least_one)
            if found.position == segment.size_bytes:
                raise InvalidBatchError(f"offset {offset} is missing")
        except InvalidBatchError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{segment.path}: {error}") from error
        except OSError as error:
            raise _storage_error(self.directory, error) from error
        if segment is active and found.position + found.length == active.size_bytes:
            active.remember_end(self.log_end_offset)
        return found

    def run_check(self, check: Check) -> None:
        """Run what an UncheckedError asks for, in any thread; then `finish` it. Raises KafkaError."""
        try:
            check.run()
        except OSError as error:
            raise _storage_error(self.directory, error) from error

    def _check_indexes(self, segment: Segment) -> None:
        """Raise UncheckedError where the indexes of a segment have to be made again."""
        if not segment.has_intact_indexes():
            if segment is self._active:
                self.roll(self._rolled_ms)  # its indexes cannot be made again while they grow
            raise UncheckedError(IndexRebuild(self, segment))

    def take_rebuilt(self, segment: Segment, rebuilt: Segment) -> None:
        """Let a segment with new indexes take the place of the old one, unless the log has dropped it meanwhile."""
        if segment in self._segments and not self.is_retired:
            rebuilt.share(self._pool)
            self._segments[self._segments.index(segment)] = rebuilt

    @property
    def damages(self) -> list[Damage]:
        """The damage that has been found so far."""
        return [damage for segment in self._segments for damage in segment.soundness.damages]

    # -- finding by time

    def time_searches(self, timestamp: int) -> Iterator[TimeSearch]:
        """A search for each segment that may hold the time, to be run in turn until one of them finds something.

        Raises UncheckedError, and KafkaError where a file cannot be opened.
        """
        limit_bytes = opening_limit_bytes(self.config)
        for segment in tuple(self._segments):
            if self.is_retired:
                raise self.failed()
            if segment.max_timestamp < timestamp:
                continue
            try:
                if not segment.indexes_checked:
                    self._check_indexes(segment)
                yield search_segment(segment, timestamp, self.log_start_offset, self.log_end_offset, limit_bytes)
            except OSError as error:
                raise _storage_error(self.directory, error) from error

    def find_time(self, timestamp: int) -> TimestampOffset | None:
        """The first record at or after `timestamp`; None where there is none. This may take long.

        Raises KafkaError like `read`.
        """
        while True:
            try:
                for search in self.time_searches(timestamp):
                    found = self.run_search(search)
                    if found is not None:
                        return found
                return None
            except UncheckedError as unchecked:
                self.run_check(unchecked.check)
                unchecked.check.finish()

    def run_search(self, search: TimeSearch) -> TimestampOffset | None:
        """Run a search, in any thread. Raises KafkaError like `read`."""
        try:
            return search.run()
        except InvalidBatchError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{search.file.path}: {error}") from error
        except OSError as error:
            raise _storage_error(self.directory, error) from error

    def max_timestamp(self) -> int:
        """The largest timestamp of the log's records; -1 where there is none."""
        return max(segment.max_timestamp for segment in self._segments)

    def find_max_timestamp(self) -> TimestampOffset | None:
        """The first record that carries the largest timestamp."""
        largest = self.max_timestamp()
        return self.find_time(largest) if largest >= 0 else None

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
        expired = self._segments[: count_expired(self._segments, self.log_start_offset, self.config, now_ms)]
        paths: list[Path] = []
        count = 0
        try:
            for segment in expired:
                if segment is self._active:
                    self.roll(now_ms)
                    if segment is self._active:
                        break  # it is empty
                paths += segment.remove()
                self._gone_bytes += segment.size_bytes
                count += 1
        except OSError as error:
            logger.error("%s: retention is tried again later: %s", self.name, error)
        if count:
            logger.info("%s: retention drops %d segments below offset %d", self.name, count, self._bases[count])
            del self._segments[:count], self._bases[:count]
            self.log_start_offset = max(self.log_start_offset, self._bases[0])
        return paths

    # -- compacting

    def plan_cleaning(self, now_ms: int, max_keys: int) -> CleanJob | None:
        """What `cleaner` should do for this log now, if anything."""
        if not self.config.is_compacted or self.failure is not None or self.is_retired:
            return None
        return plan(
            self.directory, self._segments, self.first_dirty_offset, self.recovery_point, self.config, now_ms, max_keys
        )

    def replace(self, cleaned: CleanedSegment) -> list[Path]:
        """Let a committed segment take the place of those in its range; the files to be unlinked. Raises OSError.

        Where retention has dropped the first of them meanwhile, the cleaned one is not wanted any more. Nor is it where
        the topic was deleted meanwhile: the folder's name may be another log's by now.
        """
        if self.is_retired:
            return []
        first, last = (bisect_left(self._bases, offset) for offset in cleaned)
        old = self._segments[first:last]
        if not old or old[0].base_offset != cleaned.base_offset:
            return [swap_path(self.directory, cleaned)]
        removed = [path for segment in old for path in segment.remove()]
        move_in(self.directory, cleaned)
        segment = Segment(self.directory, cleaned.base_offset, self._pool)
        segment.take_as_found(cleaned.end_offset)
        self._gone_bytes += sum(each.size_bytes for each in old) - segment.size_bytes
        self._segments[first:last] = [segment]
        self._bases[first:last] = [segment.base_offset]
        return removed

    def retire(self) -> None:
        """The topic was deleted: take no more part in anything. `release` the files before they are renamed."""
        self.is_retired = True
        self.failure = "the topic was deleted"

    def release(self) -> None:
        """Let the files of a retired log go, in any thread. Readers that hold a slice still read on."""
        for segment in self._segments:
            segment.release()

    @property
    def has_nothing_to_close(self) -> bool:
        """Whether the files are as a clean stop leaves them: untouched since the last one, or still without batches."""
        is_empty = len(self._segments) == 1 and not self._active.size_bytes and not self.log_end_offset
        is_untouched = self._is_as_closed and self._active.has_sealed_indexes() and not self._snapshots
        return self.failure is None and (is_empty or (is_untouched and self.recovery_point == self.log_end_offset))

    def close(self) -> None:
        """Write out everything that makes the next opening cheap. The caller has flushed the data."""
        self._seal(self._active)
        self._active.sync_indexes()
        self._active.close()
        self.producers.snapshot(self.directory, self.log_end_offset).write()
        self._prune_snapshots(self.log_end_offset)


def _storage_error(directory: Path, error: OSError) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory}: {error}")
