"""Reads the records inside a batch, and builds batches from records.

Not on the broker's data path, which handles whole batches. Used by tools, by lookups inside one batch, by topics whose
configuration requires a check of each record, and by tests.

A record is, with zigzag varints: length, attributes (int8), timestamp delta, offset delta, key length (-1 for
null), key, value length, value, header count, then per header key length, key, value length, value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from skylog.model import NO_PRODUCER_ID
from skylog.records.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER_BYTES,
    LAST_CODEC,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    InvalidBatchError,
)
from skylog.records.checksum import crc32c
from skylog.records.compression import DEFAULT_LIMIT_BYTES, Codec, compress, decompress


@dataclass(frozen=True, slots=True)
class Record:
    """One message. `offset` is absolute when read. To build a batch, offsets must ascend."""

    value: bytes | None = None
    key: bytes | None = None
    timestamp: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = field(default=())
    offset: int = 0


def read_records(batch: Buffer, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Iterator[Record]:
    """Yield the records of one whole batch, decompressed within `limit_bytes`.

    Raises CompressionError or InvalidBatchError if the block does not match the header exactly.
    """
    if len(batch) < HEADER_BYTES:
        raise InvalidBatchError(f"{len(batch)} bytes are too short for a batch header of {HEADER_BYTES}", corrupt=True)
    header = BatchHeader.read(batch)
    body: Buffer = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    codec = header.attributes & CODEC_MASK
    if codec > LAST_CODEC:
        raise InvalidBatchError(f"batch has unknown codec {codec}")
    if codec:
        body = decompress(header.codec, body, limit_bytes)
    try:
        yield from _read_body(body, header)
    except (IndexError, UnicodeDecodeError) as error:
        raise InvalidBatchError(f"records of the batch at offset {header.base_offset} are damaged: {error}") from error


def _read_body(body: Buffer, header: BatchHeader) -> Iterator[Record]:
    position = 0
    append_time = header.max_timestamp if header.is_log_append_time else None
    for _ in range(header.record_count):
        length, position = _read_varint(body, position)
        record_end = position + length
        if length < 0 or record_end > len(body):
            raise IndexError(f"record of {length} bytes at byte {position} exceeds the batch")
        timestamp_delta, at = _read_varint(body, position + 1)
        offset_delta, at = _read_varint(body, at)
        key, at = _read_bytes(body, at, record_end)
        value, at = _read_bytes(body, at, record_end)
        headers, at = _read_headers(body, at, record_end)
        if at != record_end:
            raise IndexError(f"record of {length} bytes at byte {position} has {at - position} bytes of fields")
        yield Record(
            value=value,
            key=key,
            timestamp=header.base_timestamp + timestamp_delta if append_time is None else append_time,
            headers=headers,
            offset=header.base_offset + offset_delta,
        )
        position = record_end
    if position != len(body):
        raise IndexError(f"{len(body) - position} bytes are left after {header.record_count} records")


def _read_headers(body: Buffer, at: int, record_end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, at = _read_varint(body, at)
    if not 0 <= count <= record_end - at:
        raise IndexError(f"record has {count} headers in {record_end - at} bytes")
    headers = []
    for _ in range(count):
        name, at = _read_bytes(body, at, record_end)
        if name is None:
            raise IndexError("record has a header without a name")
        content, at = _read_bytes(body, at, record_end)
        headers.append((name.decode(), content))
    return tuple(headers), at


def build_batch(
    records: Iterable[Record],
    *,
    codec: Codec = Codec.NONE,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    last_offset_delta: int | None = None,
) -> bytearray:
    """Build a batch. If all records have offset 0, they are numbered from `base_offset`."""
    rows = list(records)
    numbered = any(row.offset for row in rows)
    base_timestamp = rows[0].timestamp if rows else -1
    body = bytearray()
    for index, row in enumerate(rows):
        _write_record(body, row, row.timestamp - base_timestamp, row.offset - base_offset if numbered else index)
    if last_offset_delta is None:
        last_offset_delta = rows[-1].offset - base_offset if numbered else len(rows) - 1
    block = compress(codec, body) if codec else bytes(body)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(block),
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=codec | (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0),
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max((row.timestamp for row in rows), default=-1),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(rows),
    )
    batch = bytearray(header.pack() + block)
    checksum = crc32c(memoryview(batch)[CRC_START:])
    batch[:HEADER_BYTES] = header._replace(crc=checksum).pack()
    return batch


def encode_record(record: Record, timestamp_delta: int, offset_delta: int) -> bytes:
    """Return a record in the form that it has in the block of an uncompressed batch."""
    out = bytearray()
    _write_record(out, record, timestamp_delta, offset_delta)
    return bytes(out)


def _write_record(out: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    body = bytearray(b"\0")
    _write_varint(body, timestamp_delta)
    _write_varint(body, offset_delta)
    _write_bytes(body, record.key)
    _write_bytes(body, record.value)
    _write_varint(body, len(record.headers))
    for name, content in record.headers:
        _write_bytes(body, name.encode())
        _write_bytes(body, content)
    _write_varint(out, len(body))
    out += body


def _read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    byte = buffer[position]
    position += 1
    raw, shift = byte & 0x7F, 7
    while byte & 0x80:
        if shift > 63:
            raise IndexError(f"varint at byte {position} is too long")
        byte = buffer[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
    if raw >> 64:
        raise IndexError(f"varint before byte {position} has more than 64 bits")
    return (raw >> 1) ^ -(raw & 1), position


def _write_varint(out: bytearray, value: int) -> None:
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)


def _read_bytes(buffer: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = _read_varint(buffer, position)
    if length < 0:
        return None, position
    if position + length > end:
        raise IndexError(f"field of {length} bytes at byte {position} exceeds its record")
    return bytes(buffer[position : position + length]), position + length


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        _write_varint(out, -1)
    else:
        _write_varint(out, len(value))
        out += value
