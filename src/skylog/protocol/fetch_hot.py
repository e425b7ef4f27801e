"""Fetch request and response in hand-written code.

Reads what `fetch.FetchRequest` reads, as plain tuples. The response is written as pieces around the record data, which
stays in its files. A property test compares both with the declared codec.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from skylog.errors import MalformedRequestError
from skylog.protocol.primitives import read_uvarint, skip_tagged_fields, uuid_from_bytes, uvarint

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_FLEXIBLE_FROM: Final = 12
IDS_FROM: Final = 13
_SESSIONS_FROM: Final = 7
_RACKS_FROM: Final = 11
_REPLICA_STATE_FROM: Final = 15
_REPLICA_STATE: Final = struct.Struct(">iq")
_REPLICA_STATE_ALONE: Final = 1, 1, 13  # the number of tagged fields, the tag and the length of this one

# Head of the request by version: the fields up to the topics, and the position of max_wait_ms in them.
_HEAD_4: Final = struct.Struct(">iiiib")
_HEAD_7: Final = struct.Struct(">iiiibii")
_HEAD_15: Final = struct.Struct(">iiibii")


class PartitionCall(NamedTuple):
    """One requested partition."""

    partition: int
    leader_epoch: int
    offset: int
    max_bytes: int
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


class FetchCall(NamedTuple):
    """A decoded request. A topic is a name, or from version 13 on an id. `replica_id` is -1 for a consumer."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[tuple[str | UUID, list[PartitionCall]]]
    forgotten: Sequence[tuple[str | UUID, list[int]]] = ()
    replica_id: int = -1
    replica_epoch: int = -1
    rack_id: str = ""


def _row_4(row: tuple[Any, ...]) -> PartitionCall:
    return PartitionCall(row[0], -1, row[1], row[2])


def _row_5(row: tuple[Any, ...]) -> PartitionCall:
    return PartitionCall(row[0], -1, row[1], row[3], -1, row[2])


def _row_9(row: tuple[Any, ...]) -> PartitionCall:
    return PartitionCall(row[0], row[1], row[2], row[4], -1, row[3])


def _row_12(row: tuple[Any, ...]) -> PartitionCall:
    return PartitionCall(row[0], row[1], row[2], row[5], row[3], row[4])


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
    """Read the request whose body starts at `position`. Raises MalformedRequestError."""
    try:
        return _read(frame, position, version)
    except (IndexError, struct.error, UnicodeDecodeError, ValueError) as error:
        raise MalformedRequestError(f"Fetch v{version} cannot be read: {error}") from None


def _read(frame: memoryview, position: int, version: int) -> FetchCall:
    replica_id = replica_epoch = -1
    if version >= 15:
        max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = _HEAD_15.unpack_from(frame, position)
        position += _HEAD_15.size
    elif version >= 7:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = _HEAD_7.unpack_from(
            frame, position
        )
        position += _HEAD_7.size
    else:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation = _HEAD_4.unpack_from(frame, position)
        session_id, session_epoch = 0, -1
        position += _HEAD_4.size
    layout, make_row = _ROW_BY_VERSION[version]
    flexible = version >= _FLEXIBLE_FROM
    topics: list[tuple[str | UUID, list[PartitionCall]]] = []
    topic_count, position = _count(frame, position, flexible)
    topic: str | UUID
    for _ in range(topic_count):
        if version >= IDS_FROM:
            topic = uuid_from_bytes(bytes(frame[position : position + 16]))
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
    forgotten: Sequence[tuple[str | UUID, list[int]]] = ()
    rack_id = ""
    if version >= _SESSIONS_FROM:
        if flexible and frame[position] == 1:  # none, as in most requests
            position += 1
        else:
            forgotten, position = _read_forgotten(frame, position, version)
        if version >= _RACKS_FROM:
            rack_id, position = _name(frame, position, flexible)
            if version >= _REPLICA_STATE_FROM and frame[position]:
                replica_id, replica_epoch = _read_replica_state(frame, position)
    return FetchCall(
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        session_epoch,
        topics,
        forgotten,
        replica_id,
        replica_epoch,
        rack_id,
    )


def _read_replica_state(frame: memoryview, position: int) -> tuple[int, int]:
    """Read the id and epoch of a follower from the tagged fields of a request; -1 and -1 for a consumer."""
    if (frame[position], frame[position + 1], frame[position + 2]) == _REPLICA_STATE_ALONE:  # as in most requests
        replica_id, replica_epoch = _REPLICA_STATE.unpack_from(frame, position + 3)
        return replica_id, replica_epoch
    count, position = read_uvarint(frame, position)
    for _ in range(count):
        tag, position = read_uvarint(frame, position)
        length, position = read_uvarint(frame, position)
        if tag == 1:
            replica_id, replica_epoch = _REPLICA_STATE.unpack_from(frame, position)
            return replica_id, replica_epoch
        position += length
    return -1, -1


def _read_forgotten(
    frame: memoryview, position: int, version: int
) -> tuple[Sequence[tuple[str | UUID, list[int]]], int]:
    """Read the partitions to remove from the fetch session. Return the position after them, too."""
    flexible = version >= _FLEXIBLE_FROM
    topic_count, position = _count(frame, position, flexible)
    if not topic_count:
        return (), position
    forgotten: list[tuple[str | UUID, list[int]]] = []
    topic: str | UUID
    for _ in range(topic_count):
        if version >= IDS_FROM:
            topic = uuid_from_bytes(bytes(frame[position : position + 16]))
            position += 16
        else:
            topic, position = _name(frame, position, flexible)
        row_count, position = _count(frame, position, flexible)
        numbers = struct.unpack_from(f">{row_count}i", frame, position)
        position += 4 * row_count
        forgotten.append((topic, list(numbers)))
        if flexible:
            position = _skip_tags(frame, position)
    return forgotten, position


def _count(frame: memoryview, position: int, flexible: bool) -> tuple[int, int]:
    """Read an array's count, checked against the remaining bytes."""
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
        raise ValueError(f"{count} items cannot fit into {len(frame) - position} bytes")
    return count, position


def _name(frame: memoryview, position: int, flexible: bool) -> tuple[str, int]:
    if flexible:
        length = frame[position]
        if length == 1:
            return "", position + 1
        if length < 0x80:
            position += 1
        else:
            length, position = read_uvarint(frame, position)
        length -= 1
    else:
        (length,) = _INT16.unpack_from(frame, position)
        position += 2
    stop = position + length
    if length < 0 or stop > len(frame):
        raise IndexError(f"a name of {length} bytes exceeds the frame")
    return str(frame[position:stop], "utf-8"), stop


def _skip_tags(frame: memoryview, position: int) -> int:
    count, position = read_uvarint(frame, position)
    return skip_tagged_fields(frame, position, count)


# -- the response


class PartitionAnswer(NamedTuple):
    """The response of one partition. `records`, if any, has a `length` and is sent after the fields written here.

    `tags` are the tagged fields of a flexible version, encoded: see `answer_tags`. `aborted` has producer id and first
    offset of aborted transactions, for read_committed.
    """

    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: Any
    records_length: int
    tags: bytes = b"\0"
    preferred_read_replica: int = -1
    aborted: Sequence[tuple[int, int]] = ()


TopicAnswers = list[tuple[str | UUID, list[PartitionAnswer]]]

_FRAME_4: Final = struct.Struct(">iiii")
_FRAME_7: Final = struct.Struct(">iiihii")
_FRAME_12: Final = struct.Struct(">iiBihi")
_ANSWER_4: Final = struct.Struct(">ihqqii")
_ANSWER_5: Final = struct.Struct(">ihqqqii")
_ANSWER_11: Final = struct.Struct(">ihqqqiii")
_ANSWER_12: Final = struct.Struct(">ihqqqBi")
_ABORTED: Final = struct.Struct(">qq")
_ABORTED_12: Final = struct.Struct(">qqB")
_WATERMARKS: Final = struct.Struct(">ihqq")
_INT64: Final = struct.Struct(">q")
_DIVERGING: Final = struct.Struct(">iqB")
_LEADER: Final = struct.Struct(">iiB")


def fetch_reply(
    correlation_id: int,
    version: int,
    error_code: int,
    topics: TopicAnswers,
    read_committed: bool,
    session_id: int = 0,
    tags: bytes = b"\0",
    throttle_ms: int = 0,
) -> list[Any]:
    """Build the frame of a response in pieces: bytes, and the record data of the partitions as given.

    `tags` are the tagged fields of the whole response, encoded: see `endpoint_tags`.
    """
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
                pending.append(answer.tags)
        if flexible:
            pending.append(b"\0")
    if flexible:
        pending.append(tags)
    if pending:
        tail = b"".join(pending)
        pieces.append(tail)
        total += len(tail)
    if flexible:
        count = uvarint(len(topics) + 1)
        head = _FRAME_12.pack(total + 15 + len(count), correlation_id, 0, throttle_ms, error_code, session_id) + count
    elif version >= 7:
        head = _FRAME_7.pack(total + 18, correlation_id, throttle_ms, error_code, session_id, len(topics))
    else:
        head = _FRAME_4.pack(total + 12, correlation_id, throttle_ms, len(topics))
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
    """Encode a partition up to its records. The list of aborted transactions is null, or empty for read_committed."""
    index, error_code, high_watermark, last_stable, log_start, _, length, _, preferred, transactions = answer
    if transactions and read_committed:
        return _aborting_head(answer, version)
    if version >= 12:
        aborted = 1 if read_committed else 0
        return _ANSWER_12.pack(index, error_code, high_watermark, last_stable, log_start, aborted, preferred) + uvarint(
            length + 1
        )
    aborted = 0 if read_committed else -1
    if version == 11:
        return _ANSWER_11.pack(index, error_code, high_watermark, last_stable, log_start, aborted, preferred, length)
    if version >= 5:
        return _ANSWER_5.pack(index, error_code, high_watermark, last_stable, log_start, aborted, length)
    return _ANSWER_4.pack(index, error_code, high_watermark, last_stable, aborted, length)


def _aborting_head(answer: PartitionAnswer, version: int) -> bytes:
    """Like `_answer_head`, with a list of aborted transactions."""
    index, error_code, high_watermark, last_stable, log_start, _, length, _, preferred, transactions = answer
    flexible = version >= _FLEXIBLE_FROM
    parts = [_WATERMARKS.pack(index, error_code, high_watermark, last_stable)]
    if version >= 5:
        parts.append(_INT64.pack(log_start))
    count = len(transactions)
    parts.append(uvarint(count + 1) if flexible else _INT32.pack(count))
    parts += [_ABORTED_12.pack(*each, 0) if flexible else _ABORTED.pack(*each) for each in transactions]
    if version >= _RACKS_FROM:
        parts.append(_INT32.pack(preferred))
    parts.append(uvarint(length + 1) if flexible else _INT32.pack(length))
    return b"".join(parts)


def answer_tags(diverging: tuple[int, int] | None = None, leader: tuple[int, int] | None = None) -> bytes:
    """Encode tagged fields of a partition: the diverging epoch with its end offset, and leader id with its epoch."""
    fields = []
    if diverging is not None:
        fields.append(b"\0\x0d" + _DIVERGING.pack(*diverging, 0))
    if leader is not None:
        fields.append(b"\1\x09" + _LEADER.pack(*leader, 0))
    return uvarint(len(fields)) + b"".join(fields)


def endpoint_tags(endpoints: Sequence[tuple[int, str, int, str | None]]) -> bytes:
    """Encode the tagged field of a response of version 16: node id, host, port and rack of new leaders (KIP-951)."""
    if not endpoints:
        return b"\0"
    rows = [uvarint(len(endpoints) + 1)]
    for node_id, host, port, rack in endpoints:
        name, place = host.encode(), (rack or "").encode()
        rows += (_INT32.pack(node_id), uvarint(len(name) + 1), name, _INT32.pack(port))
        rows += (uvarint(len(place) + 1 if rack is not None else 0), place, b"\0")
    body = b"".join(rows)
    return b"\1\0" + uvarint(len(body)) + body
