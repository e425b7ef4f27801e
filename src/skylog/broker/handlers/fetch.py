"""Fetch (1), versions 4-17: read batches from partitions, waiting for them where there are none yet.

The answer is sent from the segment files. Where less than `min_bytes` is there, the request is parked until appends to
its partitions make up for it or `max_wait_ms` has passed. A partition that is named several times is answered once, for
the last of its rows, as in Kafka. Incremental requests are made whole by their session (`broker.fetch_sessions`).

A request of thousands of rows is decoded and its answer encoded in a thread, and it reads partitions in turns with
everybody else's work; it gets no session. One for batches that nobody has read since they were found in a file waits
until they have been checked. Other requests are answered or parked before the handler returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from uuid import UUID

from skylog.broker.api import Api, Context
from skylog.broker.fetch_sessions import FINAL_EPOCH, FULL_EPOCH, FetchSession
from skylog.broker.held_frame import HeldFrame
from skylog.broker.parking import ParkedFetch
from skylog.broker.partition import Partition
from skylog.broker.turn import Turn
from skylog.errors import ErrorCode, KafkaError
from skylog.model import TopicPartition
from skylog.net import PendingReply, Reply
from skylog.protocol.apis import ApiKey
from skylog.protocol.fetch_hot import (
    IDS_FROM,
    FetchCall,
    PartitionAnswer,
    PartitionCall,
    TopicAnswers,
    fetch_reply,
    read_fetch,
)
from skylog.storage import UncheckedError


class Reading:
    """What the log has for a request at one moment. It counts as sent; see `take_back`.

    `unchecked` has the partitions that must be checked before they can be read, `failed` why some could not be.
    """

    __slots__ = ("_sent", "failed", "has_errors", "left_bytes", "partitions", "size_bytes", "topics", "unchecked")

    def __init__(self, max_bytes: int) -> None:
        self.topics: TopicAnswers = []
        self.size_bytes = 0
        self.left_bytes = max_bytes
        self.has_errors = False
        self.partitions: list[Partition] = []
        self.unchecked: list[tuple[Partition, UncheckedError]] = []
        self.failed: dict[TopicPartition, KafkaError] = {}
        self._sent: list[tuple[Partition, int]] = []

    def note_sent(self, partition: Partition, length: int) -> None:
        self.size_bytes += length
        self.left_bytes -= length
        partition.bytes_out += length
        self._sent.append((partition, length))

    def is_enough(self, call: FetchCall) -> bool:
        """Whether the request is answered with this, rather than parked."""
        return self.has_errors or self.size_bytes >= call.min_bytes or call.max_wait_ms <= 0 or not self.partitions

    def take_back(self) -> None:
        """The request is not answered with this reading: its bytes are not sent."""
        for partition, length in self._sent:
            partition.bytes_out -= length


def handle_frame(context: Context, frame: memoryview, position: int) -> Reply | PendingReply | Awaitable[Reply]:
    held = HeldFrame.of_large(context.connection, frame)
    if held is not None:
        return _handle_large(context, held, position)
    call = _decode(frame, position, context.version)
    session = None
    if call.session_id or call.session_epoch > FULL_EPOCH:
        try:
            call, session = _resume(context, call)
        except KafkaError as error:
            return _session_error(context, error.code)
    reading = _read(context, call)
    if reading.unchecked:
        reading.take_back()
        return _handle_unchecked(context, call, session)
    if reading.is_enough(call):
        return _reply(context, call, reading, session)
    reading.take_back()
    pending = PendingReply(context.connection)
    parked = ParkedFetch(
        reading.partitions,
        call.min_bytes - reading.size_bytes,
        call.max_wait_ms / 1000,
        lambda: pending.resolve(_reply(context, call, _read(context, call), session)),
    )
    pending.on_cancel = parked.cancel
    return pending


async def _handle_large(context: Context, held: HeldFrame, position: int) -> Reply:
    loop, codec = asyncio.get_running_loop(), context.broker.codec
    with held:
        call = await loop.run_in_executor(codec, _decode, held.data, position, context.version)
    if call.session_id or call.session_epoch > FULL_EPOCH:
        context.broker.fetch_sessions.close(call.session_id)
        if call.session_epoch not in (FULL_EPOCH, FINAL_EPOCH):
            return _session_error(context, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    reading = await _wait_and_read(context, call)
    return await loop.run_in_executor(codec, _encode, context, call, reading.topics, 0)


async def _handle_unchecked(context: Context, call: FetchCall, session: FetchSession | None) -> Reply:
    return _reply(context, call, await _wait_and_read(context, call), session)


async def _wait_and_read(context: Context, call: FetchCall) -> Reading:
    """What a request is answered with, once it is there and has been checked."""
    reading = await _read_and_check(context, call)
    if not reading.is_enough(call):
        reading.take_back()
        grown = asyncio.get_running_loop().create_future()
        missing_bytes = call.min_bytes - reading.size_bytes
        parked = ParkedFetch(reading.partitions, missing_bytes, call.max_wait_ms / 1000, lambda: grown.set_result(None))
        try:
            await grown
        finally:
            parked.cancel()
        reading = await _read_and_check(context, call)
    return reading


async def _read_and_check(context: Context, call: FetchCall) -> Reading:
    """Read, and check what must be, until nothing is left to be checked."""
    failed: dict[TopicPartition, KafkaError] = {}
    while True:
        reading = await _read_in_turns(context, call, failed)
        if not reading.unchecked:
            return reading
        reading.take_back()
        for partition, unchecked in reading.unchecked:
            try:
                await context.broker.checks.run(partition.log, unchecked)
            except KafkaError as error:
                failed[partition.name] = error


def _decode(frame: memoryview, position: int, version: int) -> FetchCall:
    """The request with each partition once. Raises MalformedRequestError."""
    call = read_fetch(frame, position, version)
    if len(call.topics) == 1 and len(call.topics[0][1]) == 1:
        return call
    rows_by_topic: dict[str | UUID, dict[int, PartitionCall]] = {}
    for topic, rows in call.topics:
        rows_by_topic.setdefault(topic, {}).update({row.partition: row for row in rows})
    return call._replace(topics=[(topic, list(rows.values())) for topic, rows in rows_by_topic.items()])


def _resume(context: Context, call: FetchCall) -> tuple[FetchCall, FetchSession | None]:
    """The whole of an incremental request, and its session; a full one only ends the session that it names.

    Raises KafkaError.
    """
    sessions = context.broker.fetch_sessions
    if call.session_epoch in (FULL_EPOCH, FINAL_EPOCH):
        sessions.close(call.session_id)
        return call, None
    session = sessions.advance(call, context.version >= IDS_FROM, context.broker.clock.monotonic())
    return call._replace(topics=session.topics()), session


def _session_error(context: Context, code: ErrorCode) -> Reply:
    context.broker.requests.errors[ApiKey.FETCH, code.name] += 1
    return fetch_reply(context.correlation_id, context.version, code, [], read_committed=False)


def _reply(context: Context, call: FetchCall, reading: Reading, session: FetchSession | None) -> Reply:
    if session is not None:
        return _encode(context, call, session.changed(reading.topics), session.session_id)
    session_id = 0
    if call.session_epoch == FULL_EPOCH:
        broker = context.broker
        uses_ids = context.version >= IDS_FROM
        session_id = broker.fetch_sessions.open(call, reading.topics, uses_ids, broker.clock.monotonic())
    return _encode(context, call, reading.topics, session_id)


def _encode(context: Context, call: FetchCall, topics: TopicAnswers, session_id: int) -> Reply:
    read_committed = call.isolation_level == 1
    return fetch_reply(context.correlation_id, context.version, 0, topics, read_committed, session_id)


def _read(context: Context, call: FetchCall) -> Reading:
    reading = Reading(min(call.max_bytes, context.broker.config.broker.fetch_max_bytes))
    for topic, rows in call.topics:
        reading.topics.append((topic, [_read_row(context, topic, row, reading) for row in rows]))
    return reading


async def _read_in_turns(context: Context, call: FetchCall, failed: dict[TopicPartition, KafkaError]) -> Reading:
    turn = Turn()
    reading = Reading(min(call.max_bytes, context.broker.config.broker.fetch_max_bytes))
    reading.failed = failed
    for topic, rows in call.topics:
        answers: list[PartitionAnswer] = []
        reading.topics.append((topic, answers))
        for row in rows:
            await turn.give_way()
            answers.append(_read_row(context, topic, row, reading))
    return reading


def _read_row(context: Context, topic: str | UUID, row: PartitionCall, reading: Reading) -> PartitionAnswer:
    broker = context.broker
    try:
        partition = broker.partitions.get(_name(context, topic), row.partition)
        answer = _read_partition(partition, row, reading)
    except KafkaError as error:
        reading.has_errors = True
        broker.requests.errors[ApiKey.FETCH, error.code.name] += 1
        return PartitionAnswer(row.partition, error.code, -1, -1, -1, None, 0)
    reading.partitions.append(partition)
    if answer.error_code:
        reading.has_errors = True
        broker.requests.errors[ApiKey.FETCH, ErrorCode(answer.error_code).name] += 1
    if answer.records_length:
        reading.note_sent(partition, answer.records_length)
    return answer


def _name(context: Context, topic: str | UUID) -> str:
    if isinstance(topic, str):
        return topic
    name = context.broker.metadata.image.names.get(topic)
    if name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {topic}")
    return name


def _read_partition(partition: Partition, row: PartitionCall, reading: Reading) -> PartitionAnswer:
    log = partition.log
    left_bytes, at_least_one = reading.left_bytes, reading.size_bytes == 0
    error_code = 0
    records, length = None, 0
    try:
        partition.check_epoch(row.leader_epoch)
        if at_least_one or left_bytes > 0:
            records = partition.read(row.offset, min(row.max_bytes, left_bytes), at_least_one)
            if records is not None:
                length = records.length
                if not length:
                    records = None
    except KafkaError as error:
        if error.code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH):
            raise
        error_code = error.code
    except UncheckedError as unchecked:
        failure = reading.failed.get(partition.name)
        if failure is not None:
            error_code = failure.code
        else:
            reading.unchecked.append((partition, unchecked))
    return PartitionAnswer(
        row.partition,
        error_code,
        partition.high_watermark,
        partition.last_stable_offset,
        log.log_start_offset,
        records,
        length,
    )


API = Api(ApiKey.FETCH, 4, 17, handle_frame=handle_frame)
