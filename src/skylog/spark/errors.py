"""Errors of the data source."""

from __future__ import annotations

from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.model import TopicPartition


class OptionError(SkylogError, ValueError):
    """An option of the data source is missing, unknown or invalid."""


class DataLossError(KafkaError):
    """Requested offsets precede the start of the log: retention deleted them, or the topic was recreated."""

    def __init__(self, partition: TopicPartition, requested_offset: int, log_start_offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{partition}: offset {requested_offset} was requested, but the log starts at offset {log_start_offset}: "
            f"{log_start_offset - requested_offset} offsets were deleted by retention, or the topic was recreated; "
            f"set failOnDataLoss=false to continue from offset {log_start_offset}",
        )
        self.partition, self.requested_offset, self.log_start_offset = partition, requested_offset, log_start_offset

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return DataLossError, (self.partition, self.requested_offset, self.log_start_offset)


class ShortenedLogError(KafkaError):
    """The log ends before an offset that it used to contain."""

    def __init__(self, partition: TopicPartition, requested_offset: int, end_offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{partition}: offset {requested_offset} was requested, but the log ends at offset {end_offset}: the topic "
            "was recreated, or the end of its log was lost; set failOnDataLoss=false to read the available records",
        )
        self.partition, self.requested_offset, self.end_offset = partition, requested_offset, end_offset

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return ShortenedLogError, (self.partition, self.requested_offset, self.end_offset)


class StreamAheadError(KafkaError):
    """A stream or a job has read further than its log reaches now."""

    def __init__(self, partition: TopicPartition, start_offset: int, end_offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{partition}: offset {start_offset - 1} was read before, but the log ends at offset {end_offset}: the "
            "topic was recreated, or the end of its log was lost; to read it from the beginning, use another target "
            f"and, if there is one, another checkpoint; set failOnDataLoss=false to continue from offset {end_offset}",
        )
        self.partition, self.start_offset, self.end_offset = partition, start_offset, end_offset

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return StreamAheadError, (self.partition, self.start_offset, self.end_offset)


class LostPartitionError(KafkaError):
    """A partition that a stream reads no longer exists."""

    def __init__(self, partition: TopicPartition, start_offset: int, end_offset: int) -> None:
        super().__init__(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"{partition} no longer exists, and offsets {start_offset} to {end_offset - 1} were not read; set "
            "failOnDataLoss=false to continue without them",
        )
        self.partition, self.start_offset, self.end_offset = partition, start_offset, end_offset

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return LostPartitionError, (self.partition, self.start_offset, self.end_offset)
