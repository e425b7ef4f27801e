"""What a topic's configuration demands of a batch before it may enter the log.

Most topics keep batches as they come, and only the header is looked at. A topic that compacts, recompresses or
bounds the time of its messages pays for opening the batch. Bytes in, bytes out; nothing here touches a file.
"""

from __future__ import annotations

from typing import Final

from skylog.errors import ErrorCode, KafkaError
from skylog.records import BatchHeader, Codec, InvalidBatchError, build_batch, check_batch, read_records
from skylog.records.batch import CODEC_MASK
from skylog.records.compression import CompressionError
from skylog.storage.config import FOREVER, LogConfig

Batch = bytearray | memoryview

_BATCH_LIMIT_FACTOR: Final = 64  # a batch that grows by more than this when opened is taken for a bomb
_BATCH_LIMIT_FLOOR: Final = 16 * 1024 * 1024


def opening_limit_bytes(config: LogConfig) -> int:
    """How large the records of one batch of this log may be together."""
    return max(_BATCH_LIMIT_FLOOR, config.max_message_bytes * _BATCH_LIMIT_FACTOR)


class RejectedRecordsError(KafkaError):
    """INVALID_RECORD with the records at fault, by their index in the batch, for Produce v8 and later (KIP-467)."""

    def __init__(self, message: str, records: dict[int, str]) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)
        self.records = records


class Admission:
    """The checks that one `LogConfig` asks for, decided once."""

    __slots__ = ("_config", "_plain", "_target")

    def __init__(self, config: LogConfig) -> None:
        self._config = config
        self._target = _target_codec(config.compression_type)
        self._plain = (
            self._target is None
            and not config.is_compacted
            and config.message_timestamp_after_max_ms == FOREVER
            and config.message_timestamp_before_max_ms == FOREVER
        )

    def admit(self, batch: Batch, now_ms: int) -> tuple[Batch, BatchHeader]:
        """The batch as it is to be stored, and its header. Raises KafkaError where it may not be stored."""
        if len(batch) > self._config.max_message_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"batch of {len(batch)} bytes is larger than max.message.bytes={self._config.max_message_bytes}",
            )
        header = _checked(batch)
        if self._plain:
            return batch, header
        return self._inspect(batch, header, now_ms)

    def _inspect(self, batch: Batch, header: BatchHeader, now_ms: int) -> tuple[Batch, BatchHeader]:
        config = self._config
        if not config.is_log_append_time:
            self._check_time(header, now_ms)
        recompress = self._target is not None and self._target != header.codec
        if not config.is_compacted and not recompress:
            return batch, header
        try:
            records = list(read_records(batch, opening_limit_bytes(config)))
        except (CompressionError, InvalidBatchError) as error:
            raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
        if any(record.offset != offset for offset, record in enumerate(records, header.base_offset)):
            raise KafkaError(ErrorCode.INVALID_RECORD, "the records of a batch are not numbered from 0 without a gap")
        if config.is_compacted:
            keyless = {i: "a compacted topic needs a key" for i, record in enumerate(records) if record.key is None}
            if keyless:
                raise RejectedRecordsError(f"{len(keyless)} records have no key, which compaction needs", keyless)
        if recompress and self._target is not None:
            batch = build_batch(
                records,
                codec=self._target,
                base_offset=header.base_offset,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
                transactional=header.is_transactional,
            )
            header = BatchHeader.read(batch)
        return batch, header

    def _check_time(self, header: BatchHeader, now_ms: int) -> None:
        after = header.max_timestamp - now_ms
        before = now_ms - header.base_timestamp
        if after > self._config.message_timestamp_after_max_ms:
            raise _bad_time(f"{after} ms ahead of", "after", self._config.message_timestamp_after_max_ms)
        if before > self._config.message_timestamp_before_max_ms:
            raise _bad_time(f"{before} ms behind", "before", self._config.message_timestamp_before_max_ms)


def _bad_time(where: str, side: str, bound: int) -> KafkaError:
    message = f"timestamp is {where} the broker's clock; message.timestamp.{side}.max.ms={bound}"
    return KafkaError(ErrorCode.INVALID_TIMESTAMP, message)


def _checked(batch: Batch) -> BatchHeader:
    """The header of a client's batch, which must be exactly one, sound and whole."""
    try:
        header = check_batch(batch)
    except InvalidBatchError as error:
        code = ErrorCode.CORRUPT_MESSAGE if error.corrupt else ErrorCode.INVALID_RECORD
        raise KafkaError(code, str(error)) from error
    if header.size_bytes != len(batch):
        raise KafkaError(ErrorCode.INVALID_RECORD, "a produce request carries one batch per partition")
    if header.record_count != header.last_offset_delta + 1 or header.record_count == 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"batch has {header.record_count} records over {header.last_offset_delta + 1} offsets",
        )
    if header.attributes & ~CODEC_MASK:
        _check_attributes(header)
    return header


def _check_attributes(header: BatchHeader) -> None:
    if header.is_control:
        raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if header.is_transactional:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "transactions are not served")
    if header.is_log_append_time:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "clients may not mark a batch as log-append time")


def _target_codec(compression_type: str) -> Codec | None:
    if compression_type == "producer":
        return None
    return Codec.NONE if compression_type == "uncompressed" else Codec[compression_type.upper()]
