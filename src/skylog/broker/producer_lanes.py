"""The quick way for producers that repeat themselves.

From one request to the next a producer changes the correlation id and the batch; client id, acks, topic and partition
stay. So the bytes between them, once understood, need not be read again: they are the key under which the partition,
the place of the batch and the form of the answer are remembered. A request whose bytes are not known takes the usual
way, and is known from then on. Several known ones that have come together are stored together. Requests for several
partitions, with acks=0 or with tagged fields never take this way.
"""

from __future__ import annotations

import logging
import struct
from time import perf_counter
from typing import Final

from skylog.broker.metrics.requests import Requests
from skylog.broker.partition import Partition
from skylog.clock import Clock
from skylog.errors import KafkaError, MalformedRequestError
from skylog.limited_logger import LimitedLogger
from skylog.model import NO_TIMESTAMP
from skylog.net import Connection, Reply
from skylog.protocol.apis import ApiKey
from skylog.protocol.primitives import read_uvarint
from skylog.protocol.produce_hot import ProduceCall

limited_logger = LimitedLogger(logging.getLogger(__name__))

_LENGTH_API_CORRELATION: Final = struct.Struct(">iii")
_LENGTH: Final = struct.Struct(">i")
_OLDEST_VERSION: Final = 5
_FLEXIBLE_FROM: Final = 9
_TAIL_BYTES: Final = 3  # of a flexible request: no tags of the partition, of the topic, of the request
_MAX_LANES: Final = 4096
_MAX_RUN: Final = 32
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

    def answer(self, correlation_id: int, base_offset: int) -> bytes:
        """The answer to a batch that is stored."""
        start = self.partition.log.log_start_offset
        values = (*self._head, base_offset, NO_TIMESTAMP, start, *self._tail)
        return self._answer.pack(self._answer_bytes, correlation_id, *values)


Known = tuple[Lane, int, memoryview, int]
"""A request of a known form: its lane, its correlation id and batch, and the position after it."""


class ProducerLanes:
    """The lanes of one connection, by the bytes of the request that do not change.

    All keys have one length: a producer that writes to topics with names of several lengths keeps the latest.
    """

    __slots__ = ("_api_version", "_batch_length_at", "_clock", "_connection", "_lanes", "_requests", "_times")

    def __init__(self, connection: Connection, clock: Clock, requests: Requests, version: int) -> None:
        self._connection = connection
        self._clock = clock
        self._requests = requests
        self._times = requests[ApiKey.PRODUCE, version].at_once
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
            self._times = self._requests[ApiKey.PRODUCE, version].at_once
            self._lanes.clear()
        self._lanes[bytes(frame[_CORRELATION_END:at])] = Lane(call, partition, version)

    def serve(self, view: memoryview, position: int, end: int, parts: Reply) -> int:
        """Store the batches of the known requests from `position` on; the position of the first that is not.

        The answers are added to `parts`. Requests for one partition that stand one after the other, as a producer with
        several in flight sends them, are stored with one write. All that have come together took the same time.
        """
        times, tick = self._times, self._connection.last_activity
        began = perf_counter() if tick != times.timed_at else 0.0
        now_ms = self._clock.now_ms()
        served = 0
        try:
            while run := self._find_run(view, position, end):
                stored = self._store(run, now_ms, parts)
                served += stored
                position = run[stored - 1][3] if stored else position
                if stored < len(run):
                    break
        except Exception as error:
            limited_logger.error("a produce request of %s failed", self._connection.peer, exc_info=error)
            self._connection.close()
            return end
        if began and served:
            times.timed_at = tick
            times.record(perf_counter() - began, served)
        else:
            times.untimed += served
        return position

    def _find_run(self, view: memoryview, position: int, end: int) -> list[Known]:
        """The known requests from `position` on that are for one partition."""
        run: list[Known] = []
        while len(run) < _MAX_RUN:
            known = self._find(view, position, end)
            if known is None or (run and known[0] is not run[0][0]):
                break
            run.append(known)
            position = known[3]
        return run

    def _find(self, view: memoryview, position: int, end: int) -> Known | None:
        """The request at `position`, if it is there in full and known."""
        start = position + _LENGTH.size
        at = start + self._batch_length_at
        if end < at + _LENGTH.size:
            return None
        length, api_version, correlation_id = _LENGTH_API_CORRELATION.unpack_from(view, position)
        stop = start + length
        if api_version != self._api_version or stop > end or stop < at + _LENGTH.size:
            return None
        lane = self._lanes.get(bytes(view[start + _CORRELATION_END : at]))
        if lane is None or lane.partition.is_gone:
            return None
        if api_version >= _FLEXIBLE_FROM:  # the API key of Produce is 0, so this is the version
            batch_bytes, batch_at = _compact_length(view, at)
            batch_end = stop - _TAIL_BYTES
            if batch_at + batch_bytes - 1 != batch_end or view[batch_end] or view[batch_end + 1] or view[batch_end + 2]:
                return None
        else:
            batch_at, batch_end = at + _LENGTH.size, stop
            if _LENGTH.unpack_from(view, at)[0] != batch_end - batch_at:
                return None
        return lane, correlation_id, view[batch_at:batch_end], stop

    def _store(self, run: list[Known], now_ms: int, parts: Reply) -> int:
        """Store a run and answer it; how many of it. Those that are not stored need the usual way, which says why."""
        lane = run[0][0]
        partition = lane.partition
        if not partition.log.is_plain:
            return 0
        if len(run) > 1:
            offsets = partition.append_all([batch for _, _, batch, _ in run], now_ms, lane.acks)
            if offsets is not None:
                parts += [lane.answer(known[1], offset) for known, offset in zip(run, offsets, strict=True)]
                return len(run)
        for stored, (_, correlation_id, batch, _) in enumerate(run):
            try:
                appended = partition.append(batch, now_ms, lane.acks)
            except KafkaError:
                return stored
            parts.append(lane.answer(correlation_id, appended.base_offset))
        return len(run)


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
