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
from skylog.net import Reply
from skylog.protocol.primitives import read_uvarint
from skylog.protocol.produce_hot import ProduceCall

_API_CORRELATION: Final = struct.Struct(">ii")
_LENGTH: Final = struct.Struct(">i")
_FLEXIBLE_FROM: Final = 9
_FLEXIBLE_TAIL: Final = b"\0\0\0"  # no tags: of the partition, of the topic, of the request
_MAX_LANES: Final = 4096
_CORRELATION_END: Final = 8


class Lane:
    """One partition as one producer addresses it, and the answer with room for what changes."""

    __slots__ = ("acks", "partition", "reply", "reply_bytes", "reply_head", "reply_tail")

    def __init__(self, call: ProduceCall, partition: Partition, version: int) -> None:
        topic, ((index, _),) = call.topics[0]
        name = topic.encode()
        self.acks = call.acks
        self.partition = partition
        # What stands before and after (base offset, append time, log start offset) in the answer.
        if version >= _FLEXIBLE_FROM:
            self.reply = struct.Struct(f">iiBBB{len(name)}sBihqqqBBBBiB")
            self.reply_head = (0, 2, len(name) + 1, name, 2, index, 0)
            self.reply_tail: tuple[int, ...] = (1, 0, 0, 0, 0, 0)
        else:
            self.reply = struct.Struct(f">iiih{len(name)}siihqqq" + ("ihi" if version >= 8 else "i"))
            self.reply_head = (1, len(name), name, 1, index, 0)  # type: ignore[assignment]  # the plain form is shorter
            self.reply_tail = (0, -1, 0) if version >= 8 else (0,)
        self.reply_bytes = self.reply.size - 4

    def answer(self, correlation_id: int, base_offset: int, append_time: int) -> Reply:
        """The answer to a batch that is stored."""
        return [
            self.reply.pack(
                self.reply_bytes,
                correlation_id,
                *self.reply_head,
                base_offset,
                append_time,
                self.partition.log.log_start_offset,
                *self.reply_tail,
            )
        ]


class ProducerLanes:
    """The lanes of one connection, by the bytes of the request that do not change.

    All keys have one length: a producer that writes to topics with names of several lengths keeps the latest.
    """

    __slots__ = ("_api_version", "_batch_length_at", "_lanes")

    def __init__(self) -> None:
        self._api_version = -1
        self._batch_length_at = 0
        self._lanes: dict[bytes, Lane] = {}

    def learn(self, frame: memoryview, version: int, call: ProduceCall, partition: Partition) -> None:
        """Remember a request that has just been served the usual way, if it is of the kind that repeats."""
        ((topic, rows),) = call.topics
        ((_, records),) = rows
        if records is None or version < 5 or len(topic) > 100 or not topic.isascii():
            return
        if version >= _FLEXIBLE_FROM:
            records_at = len(frame) - len(_FLEXIBLE_TAIL) - len(records)
            at = records_at - _uvarint_bytes(len(records) + 1)
            if bytes(frame[-3:]) != _FLEXIBLE_TAIL or read_uvarint(frame, at) != (len(records) + 1, records_at):
                return
        else:
            at = len(frame) - len(records) - 4
        (api_version,) = _LENGTH.unpack_from(frame)
        if (api_version, at) != (self._api_version, self._batch_length_at) or len(self._lanes) >= _MAX_LANES:
            self._api_version, self._batch_length_at = api_version, at
            self._lanes.clear()
        self._lanes[bytes(frame[_CORRELATION_END:at])] = Lane(call, partition, version)

    def find(self, frame: memoryview) -> tuple[Lane, int, memoryview] | None:
        """Lane, correlation id and batch of a request that is known; None for any other."""
        at = self._batch_length_at
        if len(frame) <= at + 4:
            return None
        api_version, correlation_id = _API_CORRELATION.unpack_from(frame)
        if api_version != self._api_version:
            return None
        lane = self._lanes.get(bytes(frame[_CORRELATION_END:at]))
        if lane is None or lane.partition.is_gone:
            return None
        if api_version >= _FLEXIBLE_FROM:  # the API key of Produce is 0, so this is the version
            length, start = read_uvarint(frame, at)
            end = len(frame) - 3
            if start + length - 1 != end or bytes(frame[end:]) != _FLEXIBLE_TAIL:
                return None
            return lane, correlation_id, frame[start:end]
        if _LENGTH.unpack_from(frame, at)[0] != len(frame) - at - 4:
            return None
        return lane, correlation_id, frame[at + 4 :]


def _uvarint_bytes(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)
