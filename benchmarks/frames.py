"""The request frames that the load generator sends, built once per run with `struct`.

Owns the bytes of Produce v9, Fetch v12, CreateTopics v2 and of the record batches in them, and the positions of the
few fields that change from request to request. Does not use skylog's own codec, so that a slow or wrong codec cannot
affect the comparison.
"""

from __future__ import annotations

import struct
import time
from typing import Final, NamedTuple

import crc32c

PRODUCE: Final = 0
FETCH: Final = 1
CREATE_TOPICS: Final = 19
PRODUCE_VERSION: Final = 9
FETCH_VERSION: Final = 12
CREATE_TOPICS_VERSION: Final = 2
CLIENT_ID: Final = b"skylog-bench"

BATCH_OVERHEAD_BYTES: Final = 61
_CRC_COVERS_FROM: Final = 21

FRAME_TRAILER_BYTES: Final = 3
"""Empty tag sections of the partition, the topic and the message, behind the records in both directions."""


class Frame(NamedTuple):
    """A whole request with its length prefix. `patch_at` is where the records (Produce) or the offset (Fetch) begin."""

    data: bytes
    patch_at: int


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63))


def record_batch(messages: int, value_bytes: int = 200, base_offset: int = 0, value: bytes = b"") -> bytes:
    """Return an uncompressed v2 batch of `messages` keyless records, not idempotent, with a valid CRC."""
    now_ms = int(time.time() * 1000)
    value = value or bytes(i * 31 % 251 for i in range(value_bytes))
    records = bytearray()
    for delta in range(messages):
        body = b"\x00\x00" + varint(delta) + varint(-1) + varint(len(value)) + value + b"\x00"
        records += varint(len(body)) + body
    checked = struct.pack(">hiqqqhii", 0, messages - 1, now_ms, now_ms, -1, -1, -1, messages) + bytes(records)
    head = struct.pack(">qiibI", base_offset, _CRC_COVERS_FROM - 12 + len(checked), -1, 2, crc32c.crc32c(checked))
    return head + checked


def batch_of_size(size_bytes: int, value_bytes: int = 200) -> tuple[bytes, int]:
    """Return the largest batch of `value_bytes` messages of at most `size_bytes`, and its number of messages."""
    per_message = len(record_batch(1000, value_bytes)) / 1000
    messages = int((size_bytes - BATCH_OVERHEAD_BYTES) / per_message)
    while len(record_batch(messages, value_bytes)) > size_bytes:
        messages -= 1
    return record_batch(messages, value_bytes), messages


def _framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def _header(api_key: int, version: int, correlation_id: int) -> bytes:
    return struct.pack(">hhih", api_key, version, correlation_id, len(CLIENT_ID)) + CLIENT_ID + b"\x00"


def _compact_string(text: str) -> bytes:
    return uvarint(len(text.encode()) + 1) + text.encode()


def produce_request(topic: str, records: bytes, *, partition: int = 0, acks: int = 1) -> Frame:
    head = _header(PRODUCE, PRODUCE_VERSION, 7) + b"\x00" + struct.pack(">hi", acks, 30_000)
    head += b"\x02" + _compact_string(topic) + b"\x02" + struct.pack(">i", partition) + uvarint(len(records) + 1)
    return Frame(_framed(head + records + bytes(FRAME_TRAILER_BYTES)), 4 + len(head))


def produce_response(topic: str, partition: int = 0) -> bytes:
    """Return the broker's response to `produce_request`. Correlation id and base offset are patched later."""
    body = struct.pack(">i", 7) + b"\x00" + b"\x02" + _compact_string(topic) + b"\x02"
    body += struct.pack(">ihqqq", partition, 0, 0, -1, 0) + b"\x01\x00" + b"\x00\x00"
    return _framed(body + struct.pack(">i", 0) + b"\x00")


def produce_error_at(topic: str) -> int:
    """Return the position of the partition's error code in a response to `produce_request`, with length prefix."""
    return 4 + 4 + 1 + 1 + len(_compact_string(topic)) + 1 + 4


def fetch_request(
    topic: str, offset: int = 0, *, partition: int = 0, partition_max_bytes: int = 1 << 20, max_wait_ms: int = 500
) -> Frame:
    """Return a consumer's fetch with the limits of librdkafka and Java: 50 MiB in total, 1 MiB per partition."""
    head = _header(FETCH, FETCH_VERSION, 7) + struct.pack(">iiiibii", -1, max_wait_ms, 1, 50 << 20, 0, 0, -1)
    head += b"\x02" + _compact_string(topic) + b"\x02" + struct.pack(">ii", partition, -1)
    tail = struct.pack(">iqi", -1, -1, partition_max_bytes) + b"\x00\x00\x01\x01\x00"
    return Frame(_framed(head + struct.pack(">q", offset) + tail), 4 + len(head))


def fetch_response_head(topic: str, records_bytes: int, end_offset: int, partition: int = 0) -> bytes:
    """Return the bytes before the records of a fetch response, with the length prefix of the whole frame."""
    body = struct.pack(">i", 7) + b"\x00" + struct.pack(">ihi", 0, 0, 0) + b"\x02" + _compact_string(topic) + b"\x02"
    body += struct.pack(">ihqqq", partition, 0, end_offset, end_offset, 0) + b"\x00" + struct.pack(">i", -1)
    body += uvarint(records_bytes + 1)
    return struct.pack(">i", len(body) + records_bytes + FRAME_TRAILER_BYTES) + body


def fetch_error_at(topic: str) -> int:
    """Return the position of the partition's error code in a response to `fetch_request`, with length prefix."""
    return 4 + 4 + 1 + 4 + 2 + 4 + 1 + len(_compact_string(topic)) + 1 + 4


def fetch_response_records(topic: str, answer: bytes) -> bytes:
    """Return the records in a response to `fetch_request`, whose list of aborted transactions is null or empty."""
    at = fetch_error_at(topic) + 2 + 3 * 8 + 1 + 4
    size = shift = 0
    while True:
        byte = answer[at]
        at += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return answer[at : at + size - 1]


def records_end_offset(records: bytes) -> int:
    """Return the offset after the last whole batch of `records`."""
    at = end_offset = 0
    while len(records) - at >= BATCH_OVERHEAD_BYTES:
        base_offset, length = struct.unpack_from(">qi", records, at)
        if at + 12 + length > len(records):
            break
        (last_offset_delta,) = struct.unpack_from(">i", records, at + _CRC_COVERS_FROM + 2)
        end_offset = base_offset + last_offset_delta + 1
        at += 12 + length
    return end_offset


def create_topic_request(topic: str, partitions: int) -> bytes:
    header = struct.pack(">hhih", CREATE_TOPICS, CREATE_TOPICS_VERSION, 7, len(CLIENT_ID)) + CLIENT_ID
    name = topic.encode()
    entry = struct.pack(">h", len(name)) + name + struct.pack(">ihii", partitions, 1, 0, 0)
    return _framed(header + struct.pack(">i", 1) + entry + struct.pack(">ib", 30_000, 0))


def create_topic_error_at(topic: str) -> int:
    """Return the position of the topic's error code in a response to `create_topic_request`, with length prefix."""
    return 4 + 4 + 4 + 4 + 2 + len(topic.encode())
