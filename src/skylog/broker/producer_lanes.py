"""A fast lane for produce requests that repeat themselves.

From one request to the next a producer changes the correlation id and the batch; client id, acks, topic and partition
stay the same. So the bytes between them are decoded once. They are the key of a lane, which knows the partition, the
position of the batch and the form of the response. A request with unknown bytes goes to the produce handler, and gets a
lane there if it passes all checks. Known requests that arrive together are stored together. Requests for several
partitions, with acks=0 or with tagged fields have no lane.
"""

from __future__ import annotations

import logging
import struct
from time import perf_counter
from typing import Final

from skylog.broker.metrics.requests import Requests
from skylog.broker.partition import Partition
from skylog.broker.security.access import Rights
from skylog.clock import Clock
from skylog.errors import KafkaError, MalformedRequestError
from skylog.limited_logger import LimitedLogger
from skylog.model import NO_TIMESTAMP
from skylog.net import Connection, Reply
from skylog.protocol.apis import ApiKey
from skylog.protocol.primitives import read_uvarint
from skylog.protocol.produce_hot import ProduceCall
from skylog.records.batch import TRANSACTIONAL

limited_logger = LimitedLogger(logging.getLogger(__name__))

_LENGTH_API_CORRELATION: Final = struct.Struct(">iii")
_LENGTH: Final = struct.Struct(">i")
_OLDEST_VERSION: Final = 5
_FLEXIBLE_FROM: Final = 9
_TAIL_BYTES: Final = 3  # of a flexible request: no tags of the partition, of the topic, of the request
_MAX_LANES: Final = 4096
_MAX_RUN: Final = 32
_MAX_KEY_BYTES: Final = 512  # a client id may have 32 KB: the keys must stay small
_MAX_NAME_BYTES: Final = 100  # its length must be one byte in the compact form
_CORRELATION_END: Final = 8
_ATTRIBUTES_END: Final = 22  # the second byte of a batch's attributes


class Lane:
    """A partition as one producer addresses it, and the form of the response."""

    __slots__ = ("_answer", "_answer_bytes", "_head", "_tail", "acks", "has_transactions", "partition")

    def __init__(self, call: ProduceCall, partition: Partition, version: int) -> None:
        topic, ((index, _),) = call.topics[0]
        name = topic.encode()
        self.acks = call.acks
        self.has_transactions = call.transactional_id is not None
        self.partition = partition
        # The fields before and after base offset, append time and log start offset.
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
        """Return the response for a stored batch."""
        start = self.partition.log.log_start_offset
        head, tail = self._head, self._tail
        return self._answer.pack(self._answer_bytes, correlation_id, *head, base_offset, NO_TIMESTAMP, start, *tail)


Known = tuple[Lane, int, memoryview, int]
"""A request that has a lane: the lane, the correlation id, the batch, and the position after the request."""


class ProducerLanes:
    """The lanes of one session, by the bytes of the request that do not change.

    They are forgotten when an access control list changes: the handler checks the next requests again.
    All keys have the same length: of topics with names of different lengths, only those like the latest have lanes.
    """

    __slots__ = (
        "_api_version",
        "_batch_length_at",
        "_clock",
        "_connection",
        "_epoch",
        "_lanes",
        "_requests",
        "_rights",
        "_times",
    )

    def __init__(
        self, connection: Connection, clock: Clock, requests: Requests, version: int, rights: Rights | None = None
    ) -> None:
        self._connection = connection
        self._rights = rights
        self._epoch = rights.epoch if rights is not None else 0
        self._clock = clock
        self._requests = requests
        self._times = requests[ApiKey.PRODUCE, version].at_once
        self._api_version = -1
        self._batch_length_at = _CORRELATION_END  # nothing shorter is read
        self._lanes: dict[bytes, Lane] = {}

    def learn(self, frame: memoryview, version: int, call: ProduceCall, partition: Partition) -> None:
        """Make a lane for a request that the handler has just served, if it is of a form that can repeat."""
        ((topic, rows),) = call.topics
        ((_, records),) = rows
        if records is None or version < _OLDEST_VERSION or len(topic) > _MAX_NAME_BYTES or not topic.isascii():
            return
        if not partition.answers_at_once(call.acks):
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
        if self._rights is not None:
            self._forget_outdated(self._rights.epoch)
        (api_version,) = _LENGTH.unpack_from(frame)
        if (api_version, at) != (self._api_version, self._batch_length_at) or len(self._lanes) >= _MAX_LANES:
            self._api_version, self._batch_length_at = api_version, at
            self._times = self._requests[ApiKey.PRODUCE, version].at_once
            self._lanes.clear()
        self._lanes[bytes(frame[_CORRELATION_END:at])] = Lane(call, partition, version)

    def serve(self, view: memoryview, position: int, end: int, parts: Reply) -> int:
        """Store the batches of known requests from `position` on, and return the position of the first unknown one.

        Responses are added to `parts`. Consecutive requests for one partition, as a producer with several in flight
        sends them, are stored with one write. The metrics count the same time for all requests served together.
        """
        if self._rights is not None:
            self._forget_outdated(self._rights.epoch)
        times, tick = self._times, self._connection.last_activity
        began = perf_counter() if tick != times.timed_at else 0.0
        now_ms = self._clock.now_ms()
        served = 0
        try:
            while position < end:
                run = self._find_run(view, position, end)
                if not run:
                    break
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

    def with_wait(self, answer: bytes, wait_ms: int) -> bytes:
        """Return a response of a lane that announces a wait."""
        end = len(answer) - (1 if self._api_version >= _FLEXIBLE_FROM else 0)  # before the tags of the response
        return answer[: end - _LENGTH.size] + _LENGTH.pack(wait_ms) + answer[end:]

    def _forget_outdated(self, epoch: int) -> None:
        """Drop all lanes if the rights are of another epoch than when they were made."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._lanes.clear()

    def _find_run(self, view: memoryview, position: int, end: int) -> list[Known]:
        """Return the known requests from `position` on that are for the same partition."""
        run: list[Known] = []
        while position < end and len(run) < _MAX_RUN:
            known = self._find(view, position, end)
            if known is None or (run and known[0] is not run[0][0]):
                break
            run.append(known)
            position = known[3]
        return run

    def _find(self, view: memoryview, position: int, end: int) -> Known | None:
        """Return the request at `position` if it is complete and known."""
        start = position + _LENGTH.size
        at = start + self._batch_length_at
        if end < at + _LENGTH.size:
            return None
        length, api_version, correlation_id = _LENGTH_API_CORRELATION.unpack_from(view, position)
        stop = start + length
        if api_version != self._api_version or stop > end or stop < at + _LENGTH.size:
            return None
        lane = self._lanes.get(bytes(view[start + _CORRELATION_END : at]))
        if lane is None or not lane.partition.is_leader:
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
        batch = view[batch_at:batch_end]
        if self._rights is not None and not lane.has_transactions and is_in_transaction(batch):
            return None  # it needs a right to a transactional id
        return lane, correlation_id, batch, stop

    def _store(self, run: list[Known], now_ms: int, parts: Reply) -> int:
        """Store a run, respond to it, and return how many requests were stored. The handler serves the others."""
        lane = run[0][0]
        partition = lane.partition
        if not partition.answers_at_once(lane.acks):
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


def is_in_transaction(batch: memoryview) -> bool:
    """Whether a batch says that it is part of a transaction."""
    return len(batch) > _ATTRIBUTES_END and bool(batch[_ATTRIBUTES_END] & TRANSACTIONAL)


def _compact_length(frame: memoryview, at: int) -> tuple[int, int]:
    """Return the varint at `at` and the position after it. For most batches it has two bytes."""
    first, second = frame[at], frame[at + 1]
    if first >= 0x80 > second:
        return first & 0x7F | second << 7, at + 2
    try:
        return read_uvarint(frame, at)
    except MalformedRequestError:
        return -1, at  # matches no length


def _uvarint_bytes(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)
