"""The batches on their way to one partition: which are still to be sent, which wait for an answer.

Knows sequences and bytes; sending is for others.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from dataclasses import dataclass, replace
from struct import Struct
from typing import Final

from crc32c import crc32c

from skylog.errors import SkylogError
from skylog.model import TopicPartition
from skylog.records import build_batch, read_records
from skylog.records.batch import CRC_START, BatchHeader
from skylog.spark.leaders import ProducerId
from skylog.spark.writing.staging import StagedBatch

_CRC: Final = Struct(">I")
_CRC_AT: Final = 17
_PRODUCER: Final = Struct(">qhi")
_PRODUCER_AT: Final = 43


@dataclass(frozen=True, slots=True)
class Piece:
    """One batch: `size_bytes` at `position` of the file, or, where it had to be cut, the batch itself."""

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
        """The batch, without a producer yet."""
        if self.cut is not None:
            return bytearray(self.cut)
        data = bytearray(self.size_bytes)
        if os.preadv(self.file, [data], self.position) != self.size_bytes:
            raise SkylogError(f"a staged file ends before byte {self.position + self.size_bytes}: was it changed?")
        return data

    def stamped(self, producer: ProducerId) -> bytearray:
        """The batch as it is sent."""
        data = self.load()
        _PRODUCER.pack_into(data, _PRODUCER_AT, *producer, self.base_sequence)
        _CRC.pack_into(data, _CRC_AT, crc32c(memoryview(data)[CRC_START:]))
        return data

    def part(self, first: int, end: int) -> Piece:
        """The records from `first` up to but without `end`, as a batch of their own."""
        data = self.load()
        records = [replace(record, offset=0) for record in list(read_records(data))[first:end]]  # numbered anew
        cut = bytes(build_batch(records, codec=BatchHeader.read(data).codec))
        return Piece(self.base_sequence + first, end - first, -1, 0, len(cut), cut)


class Lane:
    """The batches for one partition in the order of their sequences: `flying` are sent, `waiting` are not."""

    def __init__(self, partition: TopicPartition, base_sequence: int, end_offset: int) -> None:
        self.partition = partition
        self.end_sequence = base_sequence
        self.scan_offset = end_offset
        """What the log has of this lane, and is not known of yet, lies at this offset or behind it."""
        self.limit_bytes = sys.maxsize
        self.waiting: deque[Piece] = deque()
        self.flying: deque[Piece] = deque()

    @property
    def is_done(self) -> bool:
        return not self.waiting and not self.flying

    @property
    def next_sequence(self) -> int:
        """The first sequence that is not known to be in the log."""
        left = self.flying or self.waiting
        return left[0].base_sequence if left else self.end_sequence

    def add(self, file: int, batch: StagedBatch) -> None:
        self.waiting.append(Piece(self.end_sequence, batch.record_count, file, batch.position, batch.size_bytes))
        self.end_sequence += batch.record_count

    def send(self) -> Piece:
        """The next batch, cut where it is larger than the partition takes."""
        piece = self.waiting.popleft()
        while piece.size_bytes > self.limit_bytes and piece.record_count > 1:
            middle = piece.record_count // 2
            self.waiting.appendleft(piece.part(middle, piece.record_count))
            piece = piece.part(0, middle)
        self.flying.append(piece)
        return piece

    def acknowledge(self, base_offset: int) -> None:
        """The oldest that flies is in the log; a broker that recognises a repetition may not know where."""
        piece = self.flying.popleft()
        if base_offset >= 0:
            self.scan_offset = base_offset + piece.record_count

    def take_back(self) -> None:
        """Nothing flies any more: what became of it is not known."""
        self.waiting.extendleft(reversed(self.flying))
        self.flying.clear()

    def skip_to(self, sequence: int) -> None:
        """The log has everything before `sequence`."""
        while self.waiting and self.waiting[0].end_sequence <= sequence:
            self.waiting.popleft()
        if self.waiting and self.waiting[0].base_sequence < sequence:
            piece = self.waiting.popleft()
            self.waiting.appendleft(piece.part(sequence - piece.base_sequence, piece.record_count))
