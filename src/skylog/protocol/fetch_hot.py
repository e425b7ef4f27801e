"""Fetch and its answer in straight-line code.

Reads what `fetch.FetchRequest` reads, as plain tuples and without the parts that only followers use. The answer is
written as pieces around the record data, which stays in its files. A property test holds both equal to the declared
form.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from skylog.errors import MalformedRequestError
from skylog.protocol.primitives import read_uvarint, skip_tagged_fields, uvarint

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_FLEXIBLE_FROM: Final = 12
IDS_FROM: Final = 13
_SESSIONS_FROM: Final = 7

# Head of the request by version: the fields up to the topics, and where max_wait_ms stands in them.
_HEAD_4: Final = struct.Struct(">iiiib")
_HEAD_7: Final = struct.Struct(">iiiibii")
_HEAD_15: Final = struct.Struct(">iiibii")


class PartitionCall(NamedTuple):
    """One partition that is asked for."""

    partition: int
    leader_epoch: int
    offset: int
    max_bytes: int


class FetchCall(NamedTuple):
    """A decoded request. A topic is a name, or from version 13 on an id."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[tuple[str | UUID, list[PartitionCall]]]
    forgotten: Sequence[tuple[str | UUID, list[int]]] = ()


def _row_4(row: tuple[Any, ...]) -> PartitionCall:
    return PartitionCall(row[0], -1, row[1], row[2])


def _row_5(row: tuple[Any, ...]) -> PartitionCall:
    return PartitionCall(row[0], -1, row[1], row[3])


def _row_9(row: tuple[Any, ...]) -> PartitionCall:
    return PartitionCall(row[0], row[1], row[2], row[4])


def _row_12(row: tuple[Any, ...]) -> PartitionCall:
    return PartitionCall(row[0], row[1], row[2], row[5])


_ROWS: Final = (
    (12, struct.Struct(">iiqiqi"), _row_12),
    (9, struct.Struct(">iiqqi"), _row_9),
    (5, struct.Struct(">iqqi"), _row_5),
    (4, struct.Struct(">iqi"), _row_4),
)
_ROW_BY_VERSION: Final = {
    version: next((layout, make) for low, layout, make in _ROWS if version >= low) for version in range(4, 18)
}


def read_fetch(frame: memoryview, position: int, version: int) -> FetchCall:
    """The request whose body starts at `position`. Raises MalformedRequestError."""
    try:
        return _read(frame, position, version)
    except (IndexError, struct.error, UnicodeDecodeError, ValueError) as error:
        raise MalformedRequestError(f"Fetch v{version} cannot be read: {error}") from None


def _read(frame: memoryview, position: int, version: int) -> FetchCall:
    if version >= 15:
        max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = _HEAD_15.unpack_from(frame, position)
        position += _HEAD_15.size
    elif version >= 7:
        _, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = _HEAD_7.unpack_from(
            frame, position
        )
        position += _HEAD_7.size
    else:
        _, max_wait_ms, min_bytes, max_bytes, isolation = _HEAD_4.unpack_from(frame, position)
        session_id, session_epoch = 0, -1
        position += _HEAD_4.size
    layout, make_row = _ROW_BY_VERSION[version]
    flexible = version >= _FLEXIBLE_FROM
    topics: list[tuple[str | UUID, list[PartitionCall]]] = []
    topic_count, position = _count(frame, position, flexible)
    topic: str | UUID
    for _ in range(topic_count):
        if version >= IDS_FROM:
            topic = UUID(bytes=bytes(frame[position : position + 16]))
            position += 16
        else:
            topic, position = _name(frame, position, flexible)
        row_count, position = _count(frame, position, flexible)
        rows = []
        for _ in range(row_count):
            rows.append(make_row(layout.unpack_from(frame, position)))
            position += layout.size
            if flexible:
                position = position + 1 if frame[position] == 0 else _skip_tags(frame, position)
        topics.append((topic, rows))
        if flexible:
            position = position + 1 if frame[position] == 0 else _skip_tags(frame, position)
    forgotten = _read_forgotten(frame, position, version) if version >= _SESSIONS_FROM else ()
    return FetchCall(max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, topics, forgotten)


def _read_forgotten(frame: memoryview, position: int, version: int) -> Sequence[tuple[str | UUID, list[int]]]:
    """The partitions that a session shall no longer have."""
    flexible = version >= _FLEXIBLE_FROM
    topic_count, position = _count(frame, position, flexible)
    if not topic_count:
        return ()
    forgotten: list[tuple[str | UUID, list[int]]] = []
    topic: str | UUID
    for _ in range(topic_count):
        if version >= IDS_FROM:
            topic = UUID(bytes=bytes(frame[position : position + 16]))
            position += 16
        else:
            topic, position = _name(frame, position, flexible)
        row_count, position = _count(frame, position, flexible)
        numbers = struct.unpack_from(f">{row_count}i", frame, position)
        position += 4 * row_count
        forgotten.append((topic, list(numbers)))
        if flexible:
            position = _skip_tags(frame, position)
    return forgotten


def _count(frame: memoryview, position: int, flexible: bool) -> tuple[int, int]:
    """An array's count, which must be able to lie in what is left."""
    if flexible:
        count = frame[position]
        if count < 0x80:
            position += 1
        else:
            count, position = read_uvarint(frame, position)
        count -= 1
    else:
        (count,) = _INT32.unpack_from(frame, position)
        position += 4
    if not 0 <= count <= len(frame) - position:
        raise ValueError(f"{count} items cannot lie in {len(frame) - position} bytes")
    return count, position


def _name(frame: memoryview, position: int, flexible: bool) -> tuple[str, int]:
    if flexible:
        length, position = read_uvarint(frame, position)
        length -= 1
    else:
        (length,) = _INT16.unpack_from(frame, position)
        position += 2
    stop = position + length
    if length < 0 or stop > len(frame):
        raise IndexError(f"a name of {length} bytes leaves the frame")
    return str(frame[position:stop], "utf-8"), stop


def _skip_tags(frame: memoryview, position: int) -> int:
    count, position = read_uvarint(frame, position)
    return skip_tagged_fields(frame, position, count)


# -- the answer


class PartitionAnswer(NamedTuple):
    """What one partition answers. `records` has a `length` and is sent after what is written here; None is nothing."""

    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: Any
    records_length: int


TopicAnswers = list[tuple[str | UUID, list[PartitionAnswer]]]

_FRAME_4: Final = struct.Struct(">iiii")
_FRAME_7: Final = struct.Struct(">iiihii")
_FRAME_12: Final = struct.Struct(">iiBihi")
_ANSWER_4: Final = struct.Struct(">ihqqii")
_ANSWER_5: Final = struct.Struct(">ihqqqii")
_ANSWER_11: Final = struct.Struct(">ihqqqiii")
_ANSWER_12: Final = struct.Struct(">ihqqqBi")


def fetch_reply(
    correlation_id: int,
    version: int,
    error_code: int,
    topics: TopicAnswers,
    read_committed: bool,
    session_id: int = 0,
) -> list[Any]:
    """The frame of an answer in pieces: bytes, and the record data of the partitions as it was given."""
    pieces: list[Any] = [b""]
    total = 0
    pending: list[bytes] = []
    flexible = version >= _FLEXIBLE_FROM
    for topic, answers in topics:
        pending.append(_topic_head(topic, len(answers), version))
        for answer in answers:
            pending.append(_answer_head(answer, version, read_committed))
            if answer.records is not None:
                head = b"".join(pending)
                pieces += (head, answer.records)
                total += len(head) + answer.records_length
                pending.clear()
            if flexible:
                pending.append(b"\0")
        if flexible:
            pending.append(b"\0")
    if flexible:
        pending.append(b"\0")
    if pending:
        tail = b"".join(pending)
        pieces.append(tail)
        total += len(tail)
    if flexible:
        count = uvarint(len(topics) + 1)
        head = _FRAME_12.pack(total + 15 + len(count), correlation_id, 0, 0, error_code, session_id) + count
    elif version >= 7:
        head = _FRAME_7.pack(total + 18, correlation_id, 0, error_code, session_id, len(topics))
    else:
        head = _FRAME_4.pack(total + 12, correlation_id, 0, len(topics))
    if len(pieces) > 1 and type(pieces[1]) is bytes:
        pieces[0:2] = [head + pieces[1]]
    else:
        pieces[0] = head
    return pieces


def _topic_head(topic: str | UUID, count: int, version: int) -> bytes:
    if isinstance(topic, UUID):
        return topic.bytes + uvarint(count + 1)
    text = topic.encode()
    if version >= _FLEXIBLE_FROM:
        return uvarint(len(text) + 1) + text + uvarint(count + 1)
    return _INT16.pack(len(text)) + text + _INT32.pack(count)


def _answer_head(answer: PartitionAnswer, version: int, read_committed: bool) -> bytes:
    """Everything of a partition up to its records: the list of aborted transactions is null, or empty if wanted."""
    index, error_code, high_watermark, last_stable, log_start, _, length = answer
    if version >= 12:
        aborted = 1 if read_committed else 0
        return _ANSWER_12.pack(index, error_code, high_watermark, last_stable, log_start, aborted, -1) + uvarint(
            length + 1
        )
    aborted = 0 if read_committed else -1
    if version == 11:
        return _ANSWER_11.pack(index, error_code, high_watermark, last_stable, log_start, aborted, -1, length)
    if version >= 5:
        return _ANSWER_5.pack(index, error_code, high_watermark, last_stable, log_start, aborted, length)
    return _ANSWER_4.pack(index, error_code, high_watermark, last_stable, aborted, length)
