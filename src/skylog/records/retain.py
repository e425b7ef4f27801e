"""Keeps some records of a batch and drops the others, for compaction; or changes the codec of a batch.

Records are copied as bytes, not decoded and encoded again: their deltas are relative to the batch's base offset and
base timestamp, which do not change. A batch that keeps all its records is not changed. A batch that loses some keeps
its offset range, its codec, and the producer's fields in the header.
"""

from __future__ import annotations

from typing import NamedTuple

from skylog.records.batch import (
    CODEC_MASK,
    CRC_START,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    Buffer,
    InvalidBatchError,
)
from skylog.records.checksum import crc32c
from skylog.records.compression import DEFAULT_LIMIT_BYTES, Codec, compress, decompress


class RecordSpan(NamedTuple):
    """The position of a record in its batch's block, and the fields that compaction needs."""

    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    is_tombstone: bool
    start: int
    end: int


def open_block(
    batch: Buffer, header: BatchHeader, limit_bytes: int = DEFAULT_LIMIT_BYTES, scratch: bytearray | None = None
) -> bytes:
    """Return the records of a batch, decompressed, as one block. See `decompress` for `scratch`."""
    body = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    return decompress(header.codec, body, limit_bytes, scratch) if header.attributes & CODEC_MASK else bytes(body)


def find_spans(block: bytes, count: int) -> list[RecordSpan]:
    """Locate the records of a block, in order. Raises InvalidBatchError unless the block holds exactly `count`."""
    spans: list[RecordSpan] = []
    add = spans.append
    position = 0
    size = len(block)
    try:
        for _ in range(count):
            start = position
            length, position = read_varint(block, position)
            end = position + length
            if length < 0 or end > size:
                raise InvalidBatchError(f"a record of {length} bytes at byte {start} exceeds its batch")
            timestamp_delta, position = read_varint(block, position + 1)
            offset_delta, position = read_varint(block, position)
            key_length = block[position]
            if key_length < 0x80:
                key_length = (key_length >> 1) ^ -(key_length & 1)
                position += 1
            else:
                key_length, position = read_varint(block, position)
            key = None
            if key_length >= 0:
                key_start, position = position, position + key_length
                key = block[key_start:position]
            # A length of -1 is the single byte 1; the last bit of the first byte is the sign of any other.
            add(RecordSpan(offset_delta, timestamp_delta, key, block[position] & 1 == 1, start, end))
            position = end
    except IndexError:
        position = -1
    if position != size:
        raise InvalidBatchError(f"a block of {size} bytes does not hold exactly {count} records")
    return spans


def rebuild(header: BatchHeader, block: bytes, count: int, timestamp_delta: int | None = None) -> bytes:
    """Build a batch with the same offset range and header, and only the `count` records in `block`, which may be none.

    `timestamp_delta` is the largest one of these records.
    """
    max_timestamp = header.max_timestamp
    if timestamp_delta is not None and not header.is_log_append_time:
        max_timestamp = header.base_timestamp + timestamp_delta
    changed = header._replace(max_timestamp=max_timestamp, record_count=count)
    return reseal(changed, compress(header.codec, block))


def recompress(header: BatchHeader, block: bytes, codec: Codec, level: int | None = None) -> bytes:
    """Build the same batch with its block in another codec."""
    changed = header._replace(attributes=header.attributes & ~CODEC_MASK | codec)
    return reseal(changed, compress(codec, block, level))


def reseal(header: BatchHeader, body: bytes) -> bytes:
    """Build a batch of `header` and `body`, with the matching length and CRC."""
    sized = header._replace(batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(body))
    checksum = crc32c(body, crc32c(sized.pack()[CRC_START:]))
    return sized._replace(crc=checksum).pack() + body


def read_varint(block: bytes, position: int) -> tuple[int, int]:
    byte = block[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    raw, shift = byte & 0x7F, 7
    while byte >= 0x80:
        byte = block[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
    return (raw >> 1) ^ -(raw & 1), position
