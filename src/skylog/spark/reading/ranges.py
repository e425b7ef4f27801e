"""Ranges of offsets, the unit of work of a Spark task, and their division among tasks and micro-batches."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql.datasource import InputPartition

from skylog.errors import KafkaError
from skylog.model import TopicPartition
from skylog.spark.errors import DataLossError, ShortenedLogError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReadRange(InputPartition):
    """The offsets of one partition from `start_offset` to `end_offset` (exclusive), read by one task."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int

    def __len__(self) -> int:
        return max(self.end_offset - self.start_offset, 0)

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def divide(
    ranges: Iterable[ReadRange], min_partitions: int | None = None, max_records: int | None = None
) -> list[ReadRange]:
    """Split ranges to at most `max_records` offsets, then into about `min_partitions` ranges. Drop empty ones."""
    found = [each for each in ranges if len(each)]
    if max_records is not None:
        found = [piece for each in found for piece in _pieces(each, -(-len(each) // max_records))]
    if min_partitions is None or len(found) >= min_partitions:
        return found
    total = sum(map(len, found))
    return [piece for each in found for piece in _pieces(each, max(round(len(each) * min_partitions / total), 1))]


def _pieces(whole: ReadRange, count: int) -> Sequence[ReadRange]:
    count = min(count, len(whole))
    edges = [whole.start_offset + len(whole) * index // count for index in range(count + 1)]
    return [replace(whole, start_offset=edges[i], end_offset=edges[i + 1]) for i in range(count)]


def share_out(
    limit: int, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return end offsets for a micro-batch of about `limit` offsets, shared in proportion to each partition's lag.

    Every partition with new records gets at least one offset, so a large partition cannot starve the others.
    """
    waiting = {key: max(end - starts.get(key, end), 0) for key, end in ends.items()}
    total = sum(waiting.values())
    if total <= limit:
        return dict(ends)
    return {key: starts[key] + max(limit * count // total, 1) if count else ends[key] for key, count in waiting.items()}


def within_log(part: ReadRange, log_start_offset: int, log_end_offset: int, *, fail_on_data_loss: bool) -> ReadRange:
    """Return the part of the range that is in the log.

    Raises DataLossError or ShortenedLogError if some of it is missing and `fail_on_data_loss` is set.
    """
    if part.start_offset >= part.end_offset:
        return part
    if part.start_offset < log_start_offset:
        error: KafkaError = DataLossError(part.topic_partition, part.start_offset, log_start_offset)
    elif part.end_offset > log_end_offset:
        error = ShortenedLogError(part.topic_partition, part.end_offset - 1, log_end_offset)
    else:
        return part
    if fail_on_data_loss:
        raise error
    logger.warning("%s", error)
    return replace(
        part,
        start_offset=max(part.start_offset, log_start_offset),
        end_offset=min(part.end_offset, log_end_offset),
    )
