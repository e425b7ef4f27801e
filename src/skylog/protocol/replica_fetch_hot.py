"""The follower's side of Fetch, version 17, in hand-written code: the request it sends and the response it reads.

A property test compares both with the declared codec.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from skylog.errors import MalformedRequestError
from skylog.protocol.primitives import read_uvarint, skip_tagged_fields, uuid_from_bytes, uvarint

VERSION: Final = 17
_HEAD: Final = struct.Struct(">iiibii")
_ROW: Final = struct.Struct(">iiqiqiB")
_REPLICA: Final = struct.Struct(">BBBBiqB")
_INT32: Final = struct.Struct(">i")
_ANSWER_HEAD: Final = struct.Struct(">ihi")
_ANSWER: Final = struct.Struct(">ihqqq")
_ABORTED_BYTES: Final = 16
_DIVERGING: Final = struct.Struct(">iq")
_DIVERGING_TAG: Final = 0


class ReplicaRow(NamedTuple):
    """One partition of a follower's request."""

    partition: int
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class ReplicaAnswer(NamedTuple):
    """One partition of the response. `diverging` is the epoch at which the logs part, with its end offset."""

    topic_id: UUID
    partition: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    records: memoryview
    diverging: tuple[int, int] | None


class ReplicaFetchResponse(NamedTuple):
    error_code: int
    session_id: int
    answers: list[ReplicaAnswer]


def replica_fetch(
    replica_id: int,
    replica_epoch: int,
    max_wait_ms: int,
    max_bytes: int,
    session: tuple[int, int],
    topics: Mapping[UUID, Sequence[ReplicaRow]],
    forgotten: Mapping[UUID, Sequence[int]],
) -> bytes:
    """Encode the body of a request."""
    parts = [_HEAD.pack(max_wait_ms, 1, max_bytes, 0, *session), uvarint(len(topics) + 1)]
    for topic_id, rows in topics.items():
        parts += (topic_id.bytes, uvarint(len(rows) + 1), *(_ROW.pack(*row, 0) for row in rows), b"\0")
    parts.append(uvarint(len(forgotten) + 1))
    for topic_id, indexes in forgotten.items():
        parts += (topic_id.bytes, uvarint(len(indexes) + 1), *map(_INT32.pack, indexes), b"\0")
    parts.append(_REPLICA.pack(1, 1, 1, 13, replica_id, replica_epoch, 0))  # no rack, one tagged field
    return b"".join(parts)


def read_replica_answers(frame: memoryview, position: int) -> ReplicaFetchResponse:
    """Read the response whose body starts at `position`. Records are views into the frame."""
    try:
        _, error_code, session_id = _ANSWER_HEAD.unpack_from(frame, position)
        return ReplicaFetchResponse(error_code, session_id, list(_read_topics(frame, position + _ANSWER_HEAD.size)))
    except (IndexError, struct.error, ValueError) as error:
        raise MalformedRequestError(f"a Fetch response cannot be read: {error}") from None


def _read_topics(frame: memoryview, position: int) -> Iterable[ReplicaAnswer]:
    topic_count, position = read_uvarint(frame, position)
    for _ in range(topic_count - 1):
        topic_id = uuid_from_bytes(bytes(frame[position : position + 16]))
        row_count, position = read_uvarint(frame, position + 16)
        for _ in range(row_count - 1):
            answer, position = _read_answer(frame, position, topic_id)
            yield answer
        position = _skip_tags(frame, position)


def _read_answer(frame: memoryview, position: int, topic_id: UUID) -> tuple[ReplicaAnswer, int]:
    index, error_code, high_watermark, _, log_start_offset = _ANSWER.unpack_from(frame, position)
    aborted_count, position = read_uvarint(frame, position + _ANSWER.size)
    for _ in range(aborted_count - 1):
        position = _skip_tags(frame, position + _ABORTED_BYTES)
    length, position = read_uvarint(frame, position + 4)  # after the preferred read replica
    end = position + length - 1 if length else position
    if end > len(frame):
        raise IndexError("records exceed the frame")
    records = frame[position:end]
    diverging, position = (None, end + 1) if frame[end] == 0 else _read_diverging(frame, end)
    return ReplicaAnswer(topic_id, index, error_code, high_watermark, log_start_offset, records, diverging), position


def _read_diverging(frame: memoryview, position: int) -> tuple[tuple[int, int] | None, int]:
    """Read the tagged fields of a partition. Return the diverging epoch, and the position after them."""
    diverging = None
    count, position = read_uvarint(frame, position)
    for _ in range(count):
        tag, position = read_uvarint(frame, position)
        length, position = read_uvarint(frame, position)
        if tag == _DIVERGING_TAG:
            epoch, end_offset = _DIVERGING.unpack_from(frame, position)
            diverging = epoch, end_offset
        position += length
    return diverging, position


def _skip_tags(frame: memoryview, position: int) -> int:
    count, position = read_uvarint(frame, position)
    return skip_tagged_fields(frame, position, count)
