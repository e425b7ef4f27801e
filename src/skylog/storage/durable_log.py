"""A log and its disk: makes appended batches durable, drops and replaces old segments, and closes the files.

`recovery_point` is the end of the batches that are on disk. Segments are flushed before they are compacted, and
compacted ones are on disk before they replace others; see `compaction`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from skylog.errors import ErrorCode, KafkaError
from skylog.model import TopicPartition
from skylog.storage.clean_job import CleanedSegment, CleanJob
from skylog.storage.compaction import move_in, plan, swap_path
from skylog.storage.config import LogConfig
from skylog.storage.files import FilePool
from skylog.storage.flush_task import FlushTask
from skylog.storage.opening import OpenedLog
from skylog.storage.producer_log import ProducerLog
from skylog.storage.retention import count_expired
from skylog.storage.segment import Segment
from skylog.storage.unflushed import Unflushed

logger = logging.getLogger(__name__)


class DurableLog(ProducerLog):
    """The base of `Log` that knows what is on disk. `first_dirty_offset` is the end of what compaction has cleaned."""

    def __init__(
        self,
        directory: Path,
        name: TopicPartition,
        config: LogConfig,
        pool: FilePool,
        opened: OpenedLog,
        first_dirty_offset: int,
    ) -> None:
        super().__init__(directory, name, config, opened)
        self.recovery_point = opened.recovery_point
        self.first_dirty_offset = min(first_dirty_offset, opened.log_end_offset)
        self.epochs = opened.epochs
        self._pool = pool
        self._is_flushing = False
        self.awaits_flush = False  # appended batches must be on disk before anyone may see them
        self.when_flushed: Callable[[], None] | None = None  # called after each flush, also a failed one
        self._is_as_closed = opened.is_as_closed

    def configure(self, config: LogConfig) -> None:
        """Use another configuration from now on."""
        super().configure(config)
        self._flush_messages = config.flush_messages

    @contextmanager
    def _failing_half_way(self, step: str) -> Iterator[None]:
        """Refuse all appends after an error in this block: segments, offsets and producers may not match any more.

        After a truncation, a resent batch would be taken for a duplicate of one that was cut off.
        """
        try:
            yield
        except OSError as error:
            self.failure = f"{self.directory}: {error}"
            logger.error("%s: %s failed, no more appends until a restart: %s", self.name, step, error)
            raise

    # -- flushing

    def _note_unflushed(self, messages: int, now_ms: int) -> bool:
        """Count appended messages. Return whether a flush is due."""
        unflushed = self._unflushed
        unflushed.messages += messages
        if unflushed.since_ms is None:
            unflushed.since_ms = now_ms
        if unflushed.messages < self._flush_messages:
            return False
        self.awaits_flush = unflushed.is_due = True
        return True

    def _must_flush(self) -> bool:
        """Whether a flush is due. For a batch that is sent again, the flush of the original may still be running."""
        return self._unflushed.messages >= self._flush_messages or self._flush_messages == 1

    @property
    def must_flush(self) -> bool:
        """Whether the flush policy demands an fsync before what was appended last may be acknowledged."""
        return self.recovery_point < self.log_end_offset and self._must_flush()

    @property
    def committable_end(self) -> int:
        """The end of the batches that a leader may commit, as far as the flush policy is concerned."""
        return self.recovery_point if self.awaits_flush else self.log_end_offset

    @property
    def unflushed_since_ms(self) -> int | None:
        """When the oldest unflushed message was appended."""
        return self._unflushed.since_ms

    @property
    def has_unflushed_segments(self) -> bool:
        """Whether a closed segment is not on disk yet."""
        return self.recovery_point < self._segments.active.base_offset

    def begin_flush(self) -> FlushTask:
        """Return the task that makes everything appended so far durable. Never raises: the task does, when run."""
        # The paths of a retired log may belong to another log by now.
        waiting = [] if self.is_retired else self._segments.since(self._unflushed.first_offset(self.recovery_point))
        task = self._unflushed.flush_task(self.log_end_offset, waiting, self.epochs, self.folder_name)
        self._unflushed = Unflushed()
        self._is_flushing = True
        return task

    def end_flush(self, task: FlushTask, error: OSError | None = None) -> None:
        """Record the result of `task`. After a failed fsync the state of the disk is unknown: refuse all appends."""
        self._is_flushing = False
        if self.is_retired:
            return
        try:
            for path in self._unflushed.outdated_snapshots(task):
                path.unlink(missing_ok=True)
        except OSError as failed:  # a recovery would use the snapshot
            error = error or failed
        if error is not None:
            self.failure = f"{self.directory}: {error}"
            logger.error("%s: flush failed, no more appends until a restart: %s", self.name, error)
        if self.failure is None:  # an fsync that succeeds after a failed one says nothing about what that one has lost
            self._flushed_to(self._unflushed.flushed_to(task), task)
        if self.when_flushed is not None:
            self.when_flushed()

    def _flushed_to(self, end_offset: int, task: FlushTask) -> None:
        if end_offset > self.recovery_point:
            self.recovery_point = end_offset
            if task.snapshots:
                with suppress(OSError):  # the next flush tries again
                    self._prune_snapshots(self.recovery_point)
        self.awaits_flush = self._unflushed.is_due

    # -- dropping and compacting

    def delete_records(self, before_offset: int) -> None:
        """Make `before_offset` the start of the log. The next retention run drops the segments below it."""
        if before_offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name} ends at offset {self.high_watermark}, cannot begin at {before_offset}",
            )
        self.log_start_offset = max(self.log_start_offset, before_offset)

    def drop_expired(self, now_ms: int) -> list[Path]:
        """Drop the oldest segments that the retention settings no longer cover. Return the files to unlink."""
        segments = self._segments
        paths: list[Path] = []
        dropped = 0
        try:
            count = count_expired(list(segments), self.log_start_offset, self.config, now_ms)
            if self.high_watermark < self.log_end_offset:
                count = min(count, segments.index_of(self.high_watermark))
            if self._is_flushing and len(self.producers):  # their snapshots may not be written yet
                count = min(count, segments.index_of(self.recovery_point))
            while dropped < count:
                if len(segments) == 1 and not self.roll(now_ms):
                    break  # the active segment is empty
                self._write_snapshots()
                paths += segments.drop_first()
                dropped += 1
        except OSError as error:
            logger.error("%s: retention failed and will be retried: %s", self.name, error)
        if dropped:
            logger.info("%s: retention dropped %d segments below offset %d", self.name, dropped, segments.base_offset)
            self.log_start_offset = max(self.log_start_offset, segments.base_offset)
        return paths

    def plan_cleaning(self, now_ms: int, max_keys: int) -> CleanJob | None:
        """Return the job for `cleaner` that is due now, if any."""
        if not self.config.is_compacted or self.failure is not None or self.is_retired:
            return None
        return plan(
            self.directory,
            list(self._segments),
            self.first_dirty_offset,
            min(self.recovery_point, self.last_stable_offset),
            self.config,
            now_ms,
            max_keys,
        )

    def replace(self, cleaned: CleanedSegment) -> list[Path]:
        """Replace the segments in the range of a committed one by it. Return the files to unlink. Raises OSError.

        If retention has dropped the first of them meanwhile, the cleaned one is discarded. Nothing is done if the topic
        was deleted meanwhile: the folder's name may belong to another log by now.
        """
        if self.is_retired:
            return []
        old = self._segments.between(*cleaned)
        if not old or old[0].base_offset != cleaned.base_offset:
            return [swap_path(self.directory, cleaned)]
        with self._failing_half_way("swapping in a compacted segment"):  # the next opening finishes the swap
            removed = [path for segment in old for path in segment.remove()]
            move_in(self.directory, cleaned)
        segment = Segment(self.directory, cleaned.base_offset, self._pool)
        segment.take_as_found(cleaned.end_offset)
        self._segments.replace(old, segment)
        return removed

    # -- closing

    @property
    def has_nothing_to_close(self) -> bool:
        """Whether the files are as a clean stop leaves them: unchanged since the last one, or without any batches."""
        active = self._segments.active
        is_empty = len(self._segments) == 1 and not active.size_bytes and not self.log_end_offset
        is_untouched = self._is_as_closed and active.has_sealed_indexes() and not self._unflushed.snapshots
        return self.failure is None and (is_empty or (is_untouched and self.recovery_point == self.log_end_offset))

    def close(self) -> None:
        """Write everything that makes the next opening fast. The caller has flushed the data. Raises OSError."""
        self._segments.close()
        self._take_snapshot().write()
        self._prune_snapshots(self.log_end_offset)
