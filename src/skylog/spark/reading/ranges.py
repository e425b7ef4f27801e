"""Ranges of offsets: what one Spark task reads, and how ranges are divided among tasks and micro-batches."""

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
    """The offsets of one partition from `start_offset` up to but without `end_offset`; work for one task."""

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
    """The ranges that have something, cut to at most `max_records`, and then into about `min_partitions` in all."""
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
    """Ends for one micro-batch of about `limit` offsets, shared among partitions by what each has waiting.

    Every partition that has something gets at least one offset, so none starves beside a large one.
    """
    waiting = {key: max(end - starts.get(key, end), 0) for key, end in ends.items()}
    total = sum(waiting.values())
    if total <= limit:
        return dict(ends)
    return {key: starts[key] + max(limit * count // total, 1) if count else ends[key] for key, count in waiting.items()}


def within_log(part: ReadRange, log_start_offset: int, log_end_offset: int, *, fail_on_data_loss: bool) -> ReadRange:
    """`part`, if the log has it all. If not, what the log has of it, or DataLossError and ShortenedLogError."""
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
