"""What a Spark user is told when a topic cannot be read as asked."""

from __future__ import annotations

from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import TopicPartition


class OptionError(SkylogError, ValueError):
    """An option of the data source that is missing, unknown or has no sense."""


class DataLossError(KafkaError):
    """Offsets that were to be read are not in the log: retention has removed them, or the topic was made anew."""

    def __init__(self, partition: TopicPartition, wanted_offset: int, log_start_offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{partition}: offset {wanted_offset} is wanted, but the log starts at offset {log_start_offset}, so "
            f"{log_start_offset - wanted_offset} offsets are lost to retention (or the topic was made anew); "
            f"option failOnDataLoss=false goes on from offset {log_start_offset}",
        )
        self.partition, self.wanted_offset, self.log_start_offset = partition, wanted_offset, log_start_offset

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return DataLossError, (self.partition, self.wanted_offset, self.log_start_offset)


class ShortenedLogError(KafkaError):
    """The log ends before an offset that it has had."""

    def __init__(self, partition: TopicPartition, wanted_offset: int, end_offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{partition}: offset {wanted_offset} is wanted, but the log ends at offset {end_offset}: the topic was "
            "deleted and made anew, or its end was lost; option failOnDataLoss=false goes on with what there is",
        )
        self.partition, self.wanted_offset, self.end_offset = partition, wanted_offset, end_offset

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return ShortenedLogError, (self.partition, self.wanted_offset, self.end_offset)


class LostPartitionError(KafkaError):
    """A partition that was being read is gone."""

    def __init__(self, partition: TopicPartition, start_offset: int, end_offset: int) -> None:
        super().__init__(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"{partition} is gone, with offsets {start_offset} to {end_offset - 1} not read; option "
            "failOnDataLoss=false goes on without them",
        )
