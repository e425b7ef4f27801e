"""Validates a batch against the topic's configuration before it is appended.

Most topics store batches unchanged, and only the header is read. A topic that compacts or recompresses also opens
the batch. Bytes in, bytes out: nothing here touches a file.
"""

from __future__ import annotations

from typing import Final

from skylog.errors import ErrorCode, KafkaError
from skylog.records import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    Codec,
    InvalidBatchError,
    check_batch,
)
from skylog.records.batch import CODEC_MASK
from skylog.records.compression import CompressionError
from skylog.records.retain import RecordSpan, find_spans, open_block, recompress
from skylog.storage.config import FOREVER, LogConfig

Batch = bytearray | memoryview
Admitted = tuple[Batch, BatchHeader]
"""A batch to store, and its header."""

MAX_OPENED_RECORDS: Final = 100_000
_BATCH_LIMIT_FACTOR: Final = 8  # a batch that decompresses to more than this times max.message.bytes is rejected
_BATCH_LIMIT_FLOOR: Final = 16 * 1024 * 1024


def opening_limit_bytes(config: LogConfig) -> int:
    """Return the largest decompressed size allowed for a batch of this log."""
    return max(_BATCH_LIMIT_FLOOR, config.max_message_bytes * _BATCH_LIMIT_FACTOR)


class RejectedRecordsError(KafkaError):
    """INVALID_RECORD with the rejected records by index in the batch, for Produce v8 and later (KIP-467)."""

    def __init__(self, message: str, records: dict[int, str]) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)
        self.records = records


class Admission:
    """The checks that a `LogConfig` requires. Immutable, so any thread may use it.

    `opens_batches` is true if it may have to read records, which takes time in proportion to their number. A valid
    batch of up to `as_is_bytes` without producer id and attributes, except a codec, needs no other check.
    """

    __slots__ = ("_config", "_max_message_bytes", "_plain", "_target", "as_is_bytes", "opens_batches")

    def __init__(self, config: LogConfig) -> None:
        self._config = config
        self._max_message_bytes = config.max_message_bytes
        self._target = _target_codec(config.compression_type)
        self.opens_batches = config.is_compacted or self._target is not None
        self._plain = (
            not self.opens_batches
            and config.timestamp_after_max_ms == FOREVER
            and config.timestamp_before_max_ms == FOREVER
        )
        self.as_is_bytes = config.max_message_bytes if self._plain else 0

    def admit(self, batch: Batch, now_ms: int) -> Admitted:
        """Return a client's batch as it will be stored. Raises KafkaError if it is not allowed."""
        header = self._check(batch)
        if self._plain:
            return batch, header
        return self._inspect(batch, header, now_ms)

    def admit_own(self, batch: Batch) -> Admitted:
        """Return a batch that the broker itself has built. Its records are not checked.

        The batches of a group coordinator may belong to a producer's transaction. They have no sequence.
        """
        return batch, self._check(batch, is_own=True)

    def opening_bytes(self, batch: Batch) -> int:
        """Return the largest number of record bytes that `admit` may have to read; 0 if it does not open the batch."""
        if not self.opens_batches or len(batch) < HEADER_BYTES:
            return 0
        codec = BatchHeader.read(batch).attributes & CODEC_MASK
        if not self._config.is_compacted and codec == self._target:
            return 0
        return opening_limit_bytes(self._config) if codec else len(batch)

    def _check(self, batch: Batch, is_own: bool = False) -> BatchHeader:
        """Run the checks that apply to every batch: size, header and CRC."""
        size_bytes = len(batch)
        if size_bytes > self._max_message_bytes:
            raise self._too_large(f"batch of {size_bytes} bytes")
        try:
            header = check_batch(batch)
        except InvalidBatchError as error:
            code = ErrorCode.CORRUPT_MESSAGE if error.corrupt else ErrorCode.INVALID_RECORD
            raise KafkaError(code, str(error)) from error
        count = header.record_count
        if (
            header.batch_length + LOG_OVERHEAD_BYTES != size_bytes
            or count != header.last_offset_delta + 1
            or header.attributes & ~CODEC_MASK
        ):
            _check_unusual(header, size_bytes, is_own)
        return header

    def _too_large(self, what: str) -> KafkaError:
        reason = f"{what} is larger than max.message.bytes={self._max_message_bytes}"
        return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, reason)

    def _inspect(self, batch: Batch, header: BatchHeader, now_ms: int) -> Admitted:
        config = self._config
        if not config.is_log_append_time:
            self._check_time(header, now_ms)
        changes_codec = self._target is not None and self._target != header.codec
        if not config.is_compacted and not changes_codec:
            return batch, header
        block, spans = self._open(batch, header)
        if config.is_compacted:
            keyless = {i: "a compacted topic needs a key" for i, span in enumerate(spans) if span.key is None}
            if keyless:
                raise RejectedRecordsError(f"{len(keyless)} records have no key, which compaction needs", keyless)
        if changes_codec and self._target is not None:
            batch = bytearray(recompress(header, block, self._target, self._config.compression_level))
            header = BatchHeader.read(batch)
            if len(batch) > self._max_message_bytes:
                raise self._too_large(f"batch of {len(batch)} bytes in the topic's compression.type")
        return batch, header

    def _open(self, batch: Batch, header: BatchHeader) -> tuple[bytes, list[RecordSpan]]:
        """Decompress and locate the records of a batch. Their number is limited, so other producers do not wait."""
        if header.record_count > MAX_OPENED_RECORDS:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"batch has {header.record_count} records; a topic that compacts or recompresses accepts at most "
                f"{MAX_OPENED_RECORDS}",
            )
        try:
            block = open_block(batch, header, opening_limit_bytes(self._config))
            spans = find_spans(block, header.record_count)
        except (CompressionError, InvalidBatchError) as error:
            raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
        if any(span.offset_delta != index for index, span in enumerate(spans)):
            raise KafkaError(ErrorCode.INVALID_RECORD, "the offset deltas of a batch must be 0, 1, 2, … without a gap")
        return block, spans

    def _check_time(self, header: BatchHeader, now_ms: int) -> None:
        after = header.max_timestamp - now_ms
        before = now_ms - header.base_timestamp
        if after > self._config.timestamp_after_max_ms:
            raise _bad_time(f"{after} ms ahead of", "after", self._config.timestamp_after_max_ms)
        if before > self._config.timestamp_before_max_ms:
            raise _bad_time(f"{before} ms behind", "before", self._config.timestamp_before_max_ms)


def _bad_time(where: str, side: str, bound: int) -> KafkaError:
    message = f"timestamp is {where} the broker's clock; message.timestamp.{side}.max.ms={bound}"
    return KafkaError(ErrorCode.INVALID_TIMESTAMP, message)


def _check_unusual(header: BatchHeader, size_bytes: int, is_own: bool) -> None:
    """Raise KafkaError if a batch that is valid otherwise may not be appended."""
    if header.size_bytes != size_bytes:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a produce request may carry only one batch per partition")
    if header.record_count != header.last_offset_delta + 1:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"batch has {header.record_count} records in {header.last_offset_delta + 1} offsets",
        )
    if header.is_control:
        raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if header.is_transactional and header.producer_id < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a transactional batch needs a producer id")
    if header.is_transactional and header.base_sequence < 0 and not is_own:
        reason = f"producer {header.producer_id} sent the sequence number {header.base_sequence}"
        raise KafkaError(ErrorCode.INVALID_RECORD, reason)
    if header.is_log_append_time:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "clients may not mark a batch as log-append time")


def _target_codec(compression_type: str) -> Codec | None:
    if compression_type == "producer":
        return None
    return Codec.NONE if compression_type == "uncompressed" else Codec[compression_type.upper()]
