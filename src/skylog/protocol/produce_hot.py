"""Produce request and response in hand-written code: the broker's most frequent API.

Reads what `produce.ProduceRequest` reads, as plain tuples, and writes what `produce.ProduceResponse` writes if every
partition has succeeded. A property test compares both codecs; rare cases use the declared one.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from skylog.errors import MalformedRequestError
from skylog.protocol.primitives import read_uvarint, skip_tagged_fields, uvarint

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_ACKS_TIMEOUT_COUNT: Final = struct.Struct(">hii")
_INDEX_LENGTH: Final = struct.Struct(">ii")
_FLEXIBLE_FROM: Final = 9

Rows = list[tuple[int, memoryview | None]]


class ProduceCall(NamedTuple):
    """A decoded request. Its records are views into the frame, by topic and partition."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[str, Rows]]


def read_produce(frame: memoryview, position: int, version: int) -> ProduceCall:
    """Read the request whose body starts at `position`. Raises MalformedRequestError."""
    try:
        if version >= _FLEXIBLE_FROM:
            return _read_flexible(frame, position)
        return _read_plain(frame, position)
    except (IndexError, struct.error, UnicodeDecodeError, ValueError) as error:
        raise MalformedRequestError(f"Produce v{version} cannot be read: {error}") from None


def _read_flexible(frame: memoryview, position: int) -> ProduceCall:
    end = len(frame)
    transactional_id: str | None = None
    length, position = _uvarint(frame, position)
    if length:
        transactional_id, position = _text(frame, position, length - 1)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    topic_count, position = _uvarint(frame, position + 6)
    topics: list[tuple[str, Rows]] = []
    for _ in range(_count(topic_count - 1, end - position)):
        length, position = _uvarint(frame, position)
        name, position = _text(frame, position, length - 1)
        row_count, position = _uvarint(frame, position)
        rows: Rows = []
        for _ in range(_count(row_count - 1, end - position)):
            (index,) = _INT32.unpack_from(frame, position)
            length, position = _uvarint(frame, position + 4)
            start, position = position, position + length - 1 if length else position
            if position > end:
                raise IndexError("records exceed the frame")
            rows.append((index, frame[start:position] if length else None))
            position = position + 1 if frame[position] == 0 else _skip_tags(frame, position)
        topics.append((name, rows))
        position = position + 1 if frame[position] == 0 else _skip_tags(frame, position)
    if frame[position]:
        _skip_tags(frame, position)
    return ProduceCall(transactional_id, acks, timeout_ms, topics)


def _read_plain(frame: memoryview, position: int) -> ProduceCall:
    end = len(frame)
    transactional_id: str | None = None
    (length,) = _INT16.unpack_from(frame, position)
    position += 2
    if length != -1:
        transactional_id, position = _text(frame, position, length)
    acks, timeout_ms, topic_count = _ACKS_TIMEOUT_COUNT.unpack_from(frame, position)
    position += 10
    topics: list[tuple[str, Rows]] = []
    for _ in range(_count(topic_count, end - position)):
        (length,) = _INT16.unpack_from(frame, position)
        name, position = _text(frame, position + 2, length)
        (row_count,) = _INT32.unpack_from(frame, position)
        position += 4
        rows: Rows = []
        for _ in range(_count(row_count, end - position)):
            index, length = _INDEX_LENGTH.unpack_from(frame, position)
            start = position + 8
            if length < 0:
                if length != -1:
                    raise ValueError(f"records of length {length}")
                rows.append((index, None))
                position = start
                continue
            position = start + length
            if position > end:
                raise IndexError("records exceed the frame")
            rows.append((index, frame[start:position]))
        topics.append((name, rows))
    return ProduceCall(transactional_id, acks, timeout_ms, topics)


def _uvarint(frame: memoryview, position: int) -> tuple[int, int]:
    byte = frame[position]
    if byte < 0x80:
        return byte, position + 1
    return read_uvarint(frame, position)


def _text(frame: memoryview, position: int, length: int) -> tuple[str, int]:
    stop = position + length
    if length < 0 or stop > len(frame):
        raise IndexError(f"text of {length} bytes exceeds the frame")
    return str(frame[position:stop], "utf-8"), stop


def _count(count: int, available: int) -> int:
    if not 0 <= count <= available:
        raise ValueError(f"{count} items cannot fit into {available} bytes")
    return count


def _skip_tags(frame: memoryview, position: int) -> int:
    count, position = read_uvarint(frame, position)
    return skip_tagged_fields(frame, position, count)


# -- the response

StoredRow = tuple[int, int, int, int]
Stored = list[tuple[str, list[StoredRow]]]
"""By topic: partition, base offset, log append time, log start offset."""

_FRAME_PLAIN: Final = struct.Struct(">iii")
_FRAME_FLEXIBLE: Final = struct.Struct(">iiB")
_ROW_3: Final = struct.Struct(">ihqq")
_ROW_5: Final = struct.Struct(">ihqqq")
_ROW_8: Final = struct.Struct(">ihqqqih")
_ROW_9: Final = struct.Struct(">ihqqqBBB")


def produce_reply(correlation_id: int, version: int, stored: Stored, throttle_ms: int = 0) -> bytes:
    """Build the whole frame of a response in which every partition has succeeded."""
    parts: list[bytes] = []
    if version >= _FLEXIBLE_FROM:
        for name, rows in stored:
            text = name.encode()
            parts += (uvarint(len(text) + 1), text, uvarint(len(rows) + 1))
            for index, base_offset, append_time, log_start_offset in rows:
                parts.append(_ROW_9.pack(index, 0, base_offset, append_time, log_start_offset, 1, 0, 0))
            parts.append(b"\0")
        body = uvarint(len(stored) + 1) + b"".join(parts) + _INT32.pack(throttle_ms) + b"\0"
        return _FRAME_FLEXIBLE.pack(len(body) + 5, correlation_id, 0) + body
    for name, rows in stored:
        text = name.encode()
        parts += (_INT16.pack(len(text)), text, _INT32.pack(len(rows)))
        for index, base_offset, append_time, log_start_offset in rows:
            if version >= 8:
                parts.append(_ROW_8.pack(index, 0, base_offset, append_time, log_start_offset, 0, -1))
            elif version >= 5:
                parts.append(_ROW_5.pack(index, 0, base_offset, append_time, log_start_offset))
            else:
                parts.append(_ROW_3.pack(index, 0, base_offset, append_time))
    body = b"".join(parts)
    return _FRAME_PLAIN.pack(len(body) + 12, correlation_id, len(stored)) + body + _INT32.pack(throttle_ms)
