"""The batches of idempotent producers that were rejected for a passing reason, and will come again.

A producer has several requests in flight. If the first one finds too few replicas in sync or no leader, and the second
one finds the partition well again, the second one leaves a gap in the sequence. Kafka responds with
OUT_OF_ORDER_SEQUENCE_NUMBER. librdkafka then takes another producer id, under which it also repeats what other
partitions may have stored: duplicates. If the producer is new to the partition Kafka even stores the second batch, and
then rejects the first for ever. Here the second one gets the error of the first until that has come again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from skylog.errors import ErrorCode, KafkaError
from skylog.model import MAX_TOPIC_NAME_LENGTH, TopicPartition
from skylog.records import HEADER_BYTES, BatchHeader
from skylog.storage.producer_state import ProducerState

_MAX_REMEMBERED: Final = 1000
_SEQUENCES: Final = 1 << 31


class _Rejected(NamedTuple):
    producer_id: int
    producer_epoch: int
    sequence: int
    error: KafkaError


class RejectedBatches:
    """The first rejected batch of each partition on one connection."""

    def __init__(self) -> None:
        self._first: dict[TopicPartition, _Rejected] = {}

    def __len__(self) -> int:
        return len(self._first)

    def note(self, partition: TopicPartition, batch: memoryview, error: KafkaError) -> None:
        """Remember that a batch was not stored, if its producer has a sequence and will send it again."""
        if error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            return
        if len(partition.topic) > MAX_TOPIC_NAME_LENGTH:  # no such topic will ever be
            return
        if error.code.retriable and len(batch) >= HEADER_BYTES and len(self._first) < _MAX_REMEMBERED:
            header = BatchHeader.read(batch)
            if header.base_sequence >= 0:
                rejected = _Rejected(header.producer_id, header.producer_epoch, header.base_sequence, error)
                first = self._first.setdefault(partition, rejected)
                if rejected[:2] == first[:2] and _is_before(rejected.sequence, first.sequence):
                    self._first[partition] = rejected

    def check(self, partition: TopicPartition, batch: memoryview, producers: ProducerState) -> None:
        """Raise the error of the rejected batch if it is missing before this one. One before that may be stored."""
        first = self._first.get(partition)
        if first is None or len(batch) < HEADER_BYTES:
            return
        header = BatchHeader.read(batch)
        entry = producers.find(first.producer_id)
        is_stored = entry is not None and (entry.epoch, entry.next_sequence) != (first.producer_epoch, first.sequence)
        is_other = (header.producer_id, header.producer_epoch) != (first.producer_id, first.producer_epoch)
        if is_stored or is_other or header.base_sequence == first.sequence:
            del self._first[partition]
        elif not _is_before(header.base_sequence, first.sequence):
            raise first.error


def _is_before(sequence: int, other: int) -> bool:
    """Whether a sequence number comes before another one. They begin again after the largest one."""
    return 0 < (other - sequence) % _SEQUENCES < _SEQUENCES // 2
