"""Reads a log by offset and by time.

Batches that were in the files when the log was opened are checked before they are first read. That may take long, so
`read_checked` and `time_searches` raise UncheckedError instead, for the event loop: it runs the `check` in another
thread, finishes it, and tries again. `read` and `find_time` run the checks themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from skylog.errors import ErrorCode, KafkaError
from skylog.model import TopicPartition
from skylog.records import HEADER_BYTES, BatchHeader, InvalidBatchError
from skylog.storage.admission import opening_limit_bytes
from skylog.storage.config import LogConfig
from skylog.storage.empty_runs import PASSED_AT_ONCE, RUN_BYTES, EmptyRunCheck, pass_over
from skylog.storage.files import FileSlice
from skylog.storage.folder_name import FolderName
from skylog.storage.index_rebuild import IndexRebuild
from skylog.storage.segment import Segment
from skylog.storage.segments import Segments
from skylog.storage.soundness import Check, Damage, UncheckedError
from skylog.storage.time_search import TimeSearch, TimestampOffset, search_segment


class ReadableLog:
    """The segments of a partition, and the range of offsets that can be read from them. `Log` adds the writing.

    This is a base class and not a part of `Log`. A part would need a reference to its log, to roll a segment whose
    indexes are damaged, and the cycle would keep deleted logs in memory until a full garbage collection, which is rare.

    `failure` is the reason why the log accepts no more appends. `is_retired` means that its topic was deleted: its
    folder may have been renamed, and the old name may belong to another log.
    """

    def __init__(
        self,
        directory: Path,
        name: TopicPartition,
        config: LogConfig,
        segments: Segments,
        log_start_offset: int,
        log_end_offset: int,
    ) -> None:
        self.directory = directory
        self.name = name
        self.failure: str | None = None
        self.is_retired = False
        self.folder_name = FolderName()
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self._segments = segments
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        """Use another configuration from now on."""
        self.config = config
        self._is_compacted = config.is_compacted

    # -- facts

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def appended_bytes(self) -> int:
        """The bytes appended since the log was opened, including those dropped since."""
        return self._segments.appended_bytes

    @property
    def damages(self) -> list[Damage]:
        """The damage found so far, without that of deleted records."""
        return [
            damage
            for segment in self._segments
            for damage in segment.soundness.damages
            if damage.next_offset > self.log_start_offset
        ]

    def failed(self) -> KafkaError:
        """Return why the log accepts no appends, as a new exception: a stored one would collect tracebacks."""
        if self.is_retired:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.name} was deleted")
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.failure}; no more appends until a restart")

    def _storage_error(self, error: OSError) -> KafkaError:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.directory}: {error}")

    # -- by offset

    def read(
        self, offset: int, max_bytes: int, at_least_one: bool = True, end_offset: int | None = None
    ) -> FileSlice | None:
        """Like `read_checked`, but run the checks it requires. This may take long."""
        while True:
            try:
                return self.read_checked(offset, max_bytes, at_least_one, end_offset)
            except UncheckedError as unchecked:
                self.run_check(unchecked.check)
                unchecked.check.finish()

    def read_checked(
        self, offset: int, max_bytes: int, at_least_one: bool = True, end_offset: int | None = None
    ) -> FileSlice | None:
        """Return whole batches of one segment, beginning with the one that holds `offset`; None if there are none yet.

        Only batches below `end_offset` are returned: a watermark, or None for the end of the log. With `at_least_one`
        the first batch may be larger than `max_bytes`: otherwise a reader could never get past it. Batches that
        compaction has emptied are skipped: librdkafka treats a response of only those as truncated.

        Raises OFFSET_OUT_OF_RANGE; CORRUPT_MESSAGE if the first batch is damaged; UncheckedError if batches have to be
        checked first.
        """
        if end_offset is None or end_offset > self.log_end_offset:
            end_offset = self.log_end_offset
        found = self._read(offset, max_bytes, at_least_one, end_offset)
        while self._is_compacted and found is not None and found.length:
            next_offset = self._offset_after_empty(found)
            if next_offset is None:
                break
            found = self._read(next_offset, max_bytes, at_least_one, end_offset)
        return found

    def read_as_replica(self, offset: int, max_bytes: int, at_least_one: bool) -> FileSlice | None:
        """Like `read_checked`, for a follower: up to the end of the log, with the batches that compaction has emptied.

        A follower that skipped those would never reach the end of a log that ends with them.
        """
        return self._read(offset, max_bytes, at_least_one, self.log_end_offset)

    def _read(self, offset: int, max_bytes: int, at_least_one: bool, end_offset: int) -> FileSlice | None:
        if self.is_retired:
            raise self.failed()
        if offset >= end_offset or offset < self.log_start_offset:
            if end_offset <= offset <= self.log_end_offset:
                return None
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name} holds offsets {self.log_start_offset} to {self.log_end_offset}, not {offset}",
            )
        active = self._segments.active
        segment = active if offset >= active.base_offset else self._segments.find(offset)
        try:
            if not segment.indexes_checked:
                self._check_indexes(segment)
            found = segment.read(offset, max_bytes, at_least_one)
            if found.position == segment.size_bytes:
                raise InvalidBatchError(f"offset {offset} is missing")
            if segment is active and found.position + found.length == active.size_bytes:
                active.remember_end(self.log_end_offset)
            if end_offset < self.log_end_offset and end_offset < self.end_of(segment):
                readable_bytes = segment.position_of(end_offset) - found.position
                if readable_bytes < found.length:
                    return found._replace(length=readable_bytes)
        except InvalidBatchError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{segment.path}: {error}") from error
        except OSError as error:
            raise self._storage_error(error) from error
        return found

    def _offset_after_empty(self, found: FileSlice) -> int | None:
        """Return where to continue if `found` begins with empty batches. Raises UncheckedError if there are many."""
        try:
            header = BatchHeader.read(found.file.read(found.position, HEADER_BYTES))
        except OSError as error:
            raise self._storage_error(error) from error
        if header.record_count:
            return None
        runs = self._segments.find(header.base_offset).empty_runs
        known = runs.next_offset(found.position)
        if known is not None:
            return known
        # Measure the run itself, not the part that fits into `max_bytes`. The log may begin inside its first batch.
        batches = self._read(max(header.base_offset, self.log_start_offset), RUN_BYTES, True, self.log_end_offset)
        assert batches is not None
        try:
            passed = pass_over(batches, self.log_end_offset, PASSED_AT_ONCE)
        except OSError as error:
            raise self._storage_error(error) from error
        if passed is None:
            return None
        if not passed.is_whole:
            raise UncheckedError(EmptyRunCheck(runs, batches, self.log_end_offset))
        return passed.next_offset

    # -- checks

    def end_of(self, segment: Segment) -> int:
        """Return the end of the offsets that a segment covers."""
        if segment is self._segments.active or segment.end_offset is None:
            return self.log_end_offset
        return segment.end_offset

    def indexed_segment(self, offset: int) -> Segment:
        """Return the segment that covers `offset`. Raises UncheckedError if its indexes must be rebuilt; KafkaError."""
        segment = self._segments.find(offset)
        try:
            if not segment.indexes_checked:
                self._check_indexes(segment)
        except OSError as error:
            raise self._storage_error(error) from error
        return segment

    def run_check(self, check: Check) -> None:
        """Run the check of an UncheckedError, in any thread. `finish` it afterwards. Raises KafkaError."""
        try:
            check.run()
        except OSError as error:
            raise self._storage_error(error) from error

    def _check_indexes(self, segment: Segment) -> None:
        """Raise UncheckedError if the indexes of a segment must be rebuilt."""
        if not segment.has_intact_indexes():
            if segment is self._segments.active:
                self.roll(self._segments.active_since_ms)  # indexes cannot be rebuilt while they grow
            raise UncheckedError(IndexRebuild(self, segment))

    def roll(self, now_ms: int) -> bool:
        """Close the active segment and begin one at the log's end. Return False if the active one is empty and stays.

        Raises OSError if the file cannot be created. The old segment is then still active.
        """
        return self._segments.roll(self.log_end_offset, now_ms)

    def take_rebuilt(self, segment: Segment, rebuilt: Segment) -> None:
        """Replace a segment by one with new indexes, unless the log has dropped or truncated it meanwhile."""
        if segment in self._segments and not segment.indexes_checked and not self.is_retired:
            self._segments.replace([segment], rebuilt)

    # -- by time

    def time_searches(self, timestamp: int) -> Iterator[TimeSearch]:
        """Yield a search for each segment that may hold the time. Run them in order until one finds a record.

        Raises UncheckedError, and KafkaError if a file cannot be opened.
        """
        limit_bytes = opening_limit_bytes(self.config)
        for segment in self.segments:
            if self.is_retired:
                raise self.failed()
            if segment.max_timestamp < timestamp:
                continue
            try:
                if not segment.indexes_checked:
                    self._check_indexes(segment)
                yield search_segment(segment, timestamp, self.log_start_offset, self.log_end_offset, limit_bytes)
            except OSError as error:
                raise self._storage_error(error) from error

    def run_search(self, search: TimeSearch) -> TimestampOffset | None:
        """Run a search, in any thread. Raises KafkaError like `read`."""
        try:
            return search.run()
        except InvalidBatchError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{search.file.path}: {error}") from error
        except OSError as error:
            raise self._storage_error(error) from error

    def find_time(self, timestamp: int) -> TimestampOffset | None:
        """Return the first record at or after `timestamp`; None if there is none. This may take long.

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

    def max_timestamp(self) -> int:
        """Return the largest timestamp of the log's records; -1 if there is none."""
        return max(segment.max_timestamp for segment in self._segments)

    def find_max_timestamp(self) -> TimestampOffset | None:
        """Return the first record with the largest timestamp."""
        largest = self.max_timestamp()
        return self.find_time(largest) if largest >= 0 else None

    # -- giving up the files

    def retire(self) -> None:
        """Stop all use of the log, because its topic was deleted. Call `release` before the folder is renamed."""
        self.is_retired = True
        self.failure = "the topic was deleted"

    def release(self) -> None:
        """Drop all references to open files, in any thread. Readers that hold a slice can still read it."""
        self._segments.release()
