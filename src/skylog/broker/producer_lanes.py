"""The quick way for producers that repeat themselves.

From one request to the next a producer changes the correlation id and the batch; client id, acks, topic and partition
stay. So the bytes between them, once understood, need not be read again: they are the key under which the partition,
the place of the batch and the form of the answer are remembered. A request whose bytes are not known takes the usual
way, and is known from then on. Requests for several partitions, with acks=0 or with tagged fields never take this way.
"""

from __future__ import annotations

import struct
from typing import Final

from skylog.broker.partition import Partition
from skylog.clock import Clock
from skylog.errors import KafkaError, MalformedRequestError
from skylog.net import Reply
from skylog.protocol.primitives import read_uvarint
from skylog.protocol.produce_hot import ProduceCall

_API_CORRELATION: Final = struct.Struct(">ii")
_LENGTH: Final = struct.Struct(">i")
_OLDEST_VERSION: Final = 5
_FLEXIBLE_FROM: Final = 9
_TAIL_BYTES: Final = 3  # of a flexible request: no tags of the partition, of the topic, of the request
_MAX_LANES: Final = 4096
_MAX_KEY_BYTES: Final = 512  # a client may call itself by 32 KB: what is remembered of it must stay small
_MAX_NAME_BYTES: Final = 100  # its length must be one byte in the compact form
_CORRELATION_END: Final = 8


class Lane:
    """One partition as one producer addresses it, and the answer with room for what changes."""

    __slots__ = ("_answer", "_answer_bytes", "_head", "_tail", "acks", "partition")

    def __init__(self, call: ProduceCall, partition: Partition, version: int) -> None:
        topic, ((index, _),) = call.topics[0]
        name = topic.encode()
        self.acks = call.acks
        self.partition = partition
        # What stands before and after (base offset, append time, log start offset) in the answer.
        self._head: tuple[int | bytes, ...]
        self._tail: tuple[int, ...]
        if version >= _FLEXIBLE_FROM:
            self._answer = struct.Struct(f">iiBBB{len(name)}sBihqqqBBBBiB")
            self._head = (0, 2, len(name) + 1, name, 2, index, 0)
            self._tail = (1, 0, 0, 0, 0, 0)
        else:
            self._answer = struct.Struct(f">iiih{len(name)}siihqqq" + ("ihi" if version >= 8 else "i"))
            self._head = (1, len(name), name, 1, index, 0)
            self._tail = (0, -1, 0) if version >= 8 else (0,)
        self._answer_bytes = self._answer.size - 4

    def answer(self, correlation_id: int, base_offset: int, append_time: int) -> Reply:
        """The answer to a batch that is stored."""
        start = self.partition.log.log_start_offset
        values = (*self._head, base_offset, append_time, start, *self._tail)
        return [self._answer.pack(self._answer_bytes, correlation_id, *values)]


class ProducerLanes:
    """The lanes of one connection, by the bytes of the request that do not change.

    All keys have one length: a producer that writes to topics with names of several lengths keeps the latest.
    """

    __slots__ = ("_api_version", "_batch_length_at", "_clock", "_lanes")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._api_version = -1
        self._batch_length_at = 0
        self._lanes: dict[bytes, Lane] = {}

    def learn(self, frame: memoryview, version: int, call: ProduceCall, partition: Partition) -> None:
        """Remember a request that has just been served the usual way, if it is of the kind that repeats."""
        ((topic, rows),) = call.topics
        ((_, records),) = rows
        if records is None or version < _OLDEST_VERSION or len(topic) > _MAX_NAME_BYTES or not topic.isascii():
            return
        if not partition.log.is_plain:
            return
        if version >= _FLEXIBLE_FROM:
            records_at = len(frame) - _TAIL_BYTES - len(records)
            at = records_at - _uvarint_bytes(len(records) + 1)
            if any(frame[-_TAIL_BYTES:]) or _compact_length(frame, at) != (len(records) + 1, records_at):
                return
        else:
            at = len(frame) - len(records) - _LENGTH.size
        if at > _MAX_KEY_BYTES:
            return
        (api_version,) = _LENGTH.unpack_from(frame)
        if (api_version, at) != (self._api_version, self._batch_length_at) or len(self._lanes) >= _MAX_LANES:
            self._api_version, self._batch_length_at = api_version, at
            self._lanes.clear()
        self._lanes[bytes(frame[_CORRELATION_END:at])] = Lane(call, partition, version)

    def serve(self, frame: memoryview) -> Reply | None:
        """Store the batch of a request that is known and answer it; None where the usual way is needed."""
        at, size = self._batch_length_at, len(frame)
        if size <= at + _LENGTH.size:
            return None
        api_version, correlation_id = _API_CORRELATION.unpack_from(frame)
        if api_version != self._api_version:
            return None
        lane = self._lanes.get(bytes(frame[_CORRELATION_END:at]))
        if lane is None:
            return None
        if api_version >= _FLEXIBLE_FROM:  # the API key of Produce is 0, so this is the version
            length, start = _compact_length(frame, at)
            end = size - _TAIL_BYTES
            if start + length - 1 != end or frame[end] or frame[end + 1] or frame[end + 2]:
                return None
        else:
            start, end = at + _LENGTH.size, size
            if _LENGTH.unpack_from(frame, at)[0] != end - start:
                return None
        partition = lane.partition
        if partition.is_gone or not partition.log.is_plain:
            return None
        try:
            appended = partition.append(frame[start:end], self._clock.now_ms(), lane.acks)
        except KafkaError:
            return None  # it is refused again on the usual way, which knows how to say so
        return lane.answer(correlation_id, appended.base_offset, appended.log_append_time)


def _compact_length(frame: memoryview, at: int) -> tuple[int, int]:
    """The varint at `at` and the position after it; most batches have a length of two bytes."""
    first, second = frame[at], frame[at + 1]
    if first >= 0x80 > second:
        return first & 0x7F | second << 7, at + 2
    try:
        return read_uvarint(frame, at)
    except MalformedRequestError:
        return -1, at  # no length that fits anything


def _uvarint_bytes(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)
