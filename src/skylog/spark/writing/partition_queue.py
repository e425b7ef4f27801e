"""The batches of one partition that are not stored yet: unsent, or sent and unanswered.

Handles sequences and bytes. `publisher` does the sending.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from dataclasses import dataclass, replace
from struct import Struct
from typing import Final

from skylog.errors import SkylogError
from skylog.model import TopicPartition
from skylog.records import build_batch, read_records
from skylog.records.batch import CRC_START, TRANSACTIONAL, BatchHeader
from skylog.records.checksum import crc32c
from skylog.spark.leaders import ProducerId
from skylog.spark.writing.staging import StagedBatch

_CRC: Final = Struct(">I")
_CRC_AT: Final = 17
_ATTRIBUTES: Final = Struct(">h")
_ATTRIBUTES_AT: Final = 21
_PRODUCER: Final = Struct(">qhi")
_PRODUCER_AT: Final = 43


@dataclass(frozen=True, slots=True)
class QueuedBatch:
    """One batch: `size_bytes` at `position` of the file, or its bytes in `cut` if it had to be split."""

    base_sequence: int
    record_count: int
    file: int
    position: int
    size_bytes: int
    cut: bytes | None = None

    @property
    def end_sequence(self) -> int:
        return self.base_sequence + self.record_count

    def load(self) -> bytearray:
        """Read the batch, which has no producer yet."""
        if self.cut is not None:
            return bytearray(self.cut)
        data = bytearray(self.size_bytes)
        if os.preadv(self.file, [data], self.position) != self.size_bytes:
            raise SkylogError(f"a staged file was truncated: it ends before byte {self.position + self.size_bytes}")
        return data

    def stamped(self, producer: ProducerId, *, is_transactional: bool) -> bytearray:
        """Return the batch with producer, sequence and CRC, ready to send."""
        data = self.load()
        if is_transactional:
            _ATTRIBUTES.pack_into(
                data, _ATTRIBUTES_AT, _ATTRIBUTES.unpack_from(data, _ATTRIBUTES_AT)[0] | TRANSACTIONAL
            )
        _PRODUCER.pack_into(data, _PRODUCER_AT, *producer, self.base_sequence)
        _CRC.pack_into(data, _CRC_AT, crc32c(memoryview(data)[CRC_START:]))
        return data

    def part(self, first: int, end: int) -> QueuedBatch:
        """Return the records from `first` to `end` (exclusive) as a separate batch."""
        data = self.load()
        records = [replace(record, offset=0) for record in list(read_records(data))[first:end]]  # renumbered
        cut = bytes(build_batch(records, codec=BatchHeader.read(data).codec))
        return QueuedBatch(self.base_sequence + first, end - first, -1, 0, len(cut), cut)


class PartitionQueue:
    """The batches of one partition in sequence order: `in_flight` are sent and unanswered, `waiting` are not sent."""

    def __init__(self, partition: TopicPartition, base_sequence: int, end_offset: int) -> None:
        self.partition = partition
        self.end_sequence = base_sequence
        self.scan_offset = end_offset
        """Batches of this queue that were stored without our knowledge are at or after this offset of the log."""
        self.limit_bytes = sys.maxsize
        self.waiting: deque[QueuedBatch] = deque()
        self.in_flight: deque[QueuedBatch] = deque()

    @property
    def is_done(self) -> bool:
        return not self.waiting and not self.in_flight

    @property
    def next_sequence(self) -> int:
        """The first sequence that may not be in the log."""
        left = self.in_flight or self.waiting
        return left[0].base_sequence if left else self.end_sequence

    def add(self, file: int, batch: StagedBatch) -> None:
        self.waiting.append(QueuedBatch(self.end_sequence, batch.record_count, file, batch.position, batch.size_bytes))
        self.end_sequence += batch.record_count

    def next_batch(self) -> QueuedBatch:
        """Take the next batch to send. Split it if it is larger than `limit_bytes`."""
        batch = self.waiting.popleft()
        while batch.size_bytes > self.limit_bytes and batch.record_count > 1:
            middle = batch.record_count // 2
            self.waiting.appendleft(batch.part(middle, batch.record_count))
            batch = batch.part(0, middle)
        self.in_flight.append(batch)
        return batch

    def acknowledge(self, base_offset: int) -> None:
        """Remove the oldest batch in flight, which is in the log. For a duplicate, the broker may not return its
        offset."""
        batch = self.in_flight.popleft()
        if base_offset >= 0:
            self.scan_offset = base_offset + batch.record_count

    def requeue(self) -> None:
        """Move all batches in flight back to `waiting`. They may or may not be in the log."""
        self.waiting.extendleft(reversed(self.in_flight))
        self.in_flight.clear()

    def skip_to(self, sequence: int) -> None:
        """Drop all records before `sequence`, which are in the log."""
        while self.waiting and self.waiting[0].end_sequence <= sequence:
            self.waiting.popleft()
        if self.waiting and self.waiting[0].base_sequence < sequence:
            batch = self.waiting.popleft()
            self.waiting.appendleft(batch.part(sequence - batch.base_sequence, batch.record_count))
