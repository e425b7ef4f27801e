"""A fast lane for produce requests that repeat themselves.

From one request to the next a producer changes the correlation id and the batch; client id, acks, topic and partition
stay the same. So the bytes between them are decoded once. They are the key of a lane, which knows the partition, the
position of the batch and the form of the response. A request with unknown bytes goes to the produce handler, and gets a
lane there if it passes all checks. Known requests with ordinary batches that arrive together are stored together: see
`producer_runs`. Requests for several partitions, with acks=0 or with tagged fields have no lane.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from time import perf_counter
from typing import Final

from skylog.broker.metrics.requests import Requests
from skylog.broker.partition import Partition
from skylog.broker.producer_runs import COMPILED_BYTES, FLEXIBLE_FROM, TAIL_BYTES, compiled, take_run_in_python
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
_OFFSETS: Final = struct.Struct(">qqq")
_OLDEST_VERSION: Final = 5
_MAX_LANES: Final = 4096
_MAX_KEY_BYTES: Final = 512  # a client id may have 32 KB: the keys must stay small
_MAX_NAME_BYTES: Final = 100  # its length must be one byte in the compact form
_CORRELATION_END: Final = 8
_ATTRIBUTES_END: Final = 22  # the second byte of a batch's attributes


class Lane:
    """A partition as one producer addresses it, and the form of the response.

    `form` is a response without correlation id, base offset and log start offset. The first of these offsets is at
    `offset_at`.
    """

    __slots__ = ("acks", "form", "has_transactions", "key", "offset_at", "partition")

    def __init__(self, call: ProduceCall, partition: Partition, version: int, key: bytes) -> None:
        topic, ((index, _),) = call.topics[0]
        name = topic.encode()
        self.acks = call.acks
        self.has_transactions = call.transactional_id is not None
        self.partition = partition
        self.key = key
        if version >= FLEXIBLE_FROM:
            head = struct.pack(f">BBB{len(name)}sBih", 0, 2, len(name) + 1, name, 2, index, 0)
            tail = struct.pack(">BBBBiB", 1, 0, 0, 0, 0, 0)
        else:
            head = struct.pack(f">ih{len(name)}siih", 1, len(name), name, 1, index, 0)
            tail = struct.pack(">ihi", 0, -1, 0) if version >= 8 else struct.pack(">i", 0)
        offsets = _OFFSETS.pack(0, NO_TIMESTAMP, 0)
        self.offset_at = 2 * _LENGTH.size + len(head)
        size_bytes = _LENGTH.size + len(head) + len(offsets) + len(tail)
        self.form = _LENGTH.pack(size_bytes) + bytes(_LENGTH.size) + head + offsets + tail

    def answer(self, correlation_id: int, base_offset: int) -> bytes:
        """Return the response for a stored batch."""
        answer = bytearray(self.form)
        _LENGTH.pack_into(answer, _LENGTH.size, correlation_id)
        _OFFSETS.pack_into(answer, self.offset_at, base_offset, NO_TIMESTAMP, self.partition.log.log_start_offset)
        return bytes(answer)


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
        "_latest",
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
        self._latest: Lane | None = None  # most connections use one lane

    def learn(self, frame: memoryview, version: int, call: ProduceCall, partition: Partition) -> None:
        """Make a lane for a request that the handler has just served, if it is of a form that can repeat."""
        ((topic, rows),) = call.topics
        ((_, records),) = rows
        if records is None or version < _OLDEST_VERSION or len(topic) > _MAX_NAME_BYTES or not topic.isascii():
            return
        if not partition.answers_at_once(call.acks):
            return
        if version >= FLEXIBLE_FROM:
            records_at = len(frame) - TAIL_BYTES - len(records)
            at = records_at - _uvarint_bytes(len(records) + 1)
            if any(frame[-TAIL_BYTES:]) or _compact_length(frame, at) != (len(records) + 1, records_at):
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
            self._forget()
        key = bytes(frame[_CORRELATION_END:at])
        self._lanes[key] = self._latest = Lane(call, partition, version, key)

    def serve(self, view: memoryview, position: int, end: int, parts: Reply) -> int:
        """Store the batches of known requests from `position` on, and return the position of the first unknown one.

        Responses are added to `parts`. Ordinary requests for one partition, as a producer with several in flight sends
        them, are stored with one write. The metrics count the same time for all requests served together.
        """
        if self._rights is not None:
            self._forget_outdated(self._rights.epoch)
        times, tick = self._times, self._connection.last_activity
        began = perf_counter() if tick != times.timed_at else 0.0
        now_ms = self._clock.now_ms()
        served = 0
        try:
            while position < end:
                before = position
                position, count = self._store_run(view, position, end, now_ms, parts)
                if position == before:
                    position, count = self._store_one(view, position, end, now_ms, parts)
                if position == before:
                    break
                served += count
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

    def with_wait(self, answers: bytes, wait_ms: int) -> bytes:
        """Return responses of lanes, one after another, so that each announces a wait."""
        changed = bytearray(answers)
        tags = 1 if self._api_version >= FLEXIBLE_FROM else 0  # of the response, behind the wait
        for end in response_ends(answers):
            _LENGTH.pack_into(changed, end - tags - _LENGTH.size, wait_ms)
        return bytes(changed)

    def _forget_outdated(self, epoch: int) -> None:
        """Drop all lanes if the rights are of another epoch than when they were made."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._forget()

    def _forget(self) -> None:
        self._lanes.clear()
        self._latest = None

    def _store_run(self, view: memoryview, position: int, end: int, now_ms: int, parts: Reply) -> tuple[int, int]:
        """Store the ordinary requests of one lane from `position` on. Return the position behind and their number."""
        lane = self._latest
        if lane is None or not lane.partition.takes_runs(lane.acks):
            return position, 0
        partition = lane.partition
        log = partition.log
        max_bytes = log.admission.as_is_bytes
        offsets = log.log_end_offset, partition.leader_epoch, log.log_start_offset
        given = (self._api_version, lane.key, lane.form, lane.offset_at, *offsets)
        run = compiled(view, position, end, *given, min(max_bytes, COMPILED_BYTES)) if compiled is not None else None
        if run is None:
            run = take_run_in_python(view, position, end, *given, max_bytes)
            if run is None:
                return position, 0
        stop, batches, length, rows, end_offset, answers = run
        if not partition.append_run(batches, length, rows, end_offset, now_ms):
            return position, 0
        parts.append(answers)
        return stop, len(rows)

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
        self._latest = lane
        if api_version >= FLEXIBLE_FROM:  # the API key of Produce is 0, so this is the version
            batch_bytes, batch_at = _compact_length(view, at)
            batch_end = stop - TAIL_BYTES
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

    def _store_one(self, view: memoryview, position: int, end: int, now_ms: int, parts: Reply) -> tuple[int, int]:
        """Store the known request at `position`. The handler serves one that is refused, for its error."""
        known = self._find(view, position, end)
        if known is None:
            return position, 0
        lane, correlation_id, batch, stop = known
        if not lane.partition.answers_at_once(lane.acks):
            return position, 0
        try:
            appended = lane.partition.append(batch, now_ms, lane.acks)
        except KafkaError:
            return position, 0
        parts.append(lane.answer(correlation_id, appended.base_offset))
        return stop, 1


def response_ends(answers: bytes) -> Iterator[int]:
    """Yield the position after each of some responses, which come one after another."""
    end = 0
    while end < len(answers):
        end += _LENGTH.size + _LENGTH.unpack_from(answers, end)[0]
        yield end


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
