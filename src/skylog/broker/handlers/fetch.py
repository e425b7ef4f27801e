"""Fetch (1), versions 4-17: read batches from partitions, and wait for them if there are none yet.

The response is sent from the segment files. If it has fewer than `min_bytes`, the request is parked until enough is
appended or `max_wait_ms` has passed. A partition that is named several times is answered once, for the last of its
rows, as in Kafka. The fetch session completes incremental requests (`broker.fetch_sessions`).

With isolation_level 1 (read_committed) records end at the last stable offset, and the response lists the aborted
transactions among them. The request is woken when that offset moves.

From version 11 on a consumer may read from any replica, below its high watermark (KIP-392). The leader sends it to the
one in its rack (`broker.read_replicas`). From version 16 on a response says where a partition has moved (KIP-951).

A request of thousands of rows is decoded, and its response encoded, in a thread. It gives way to other requests while
it reads, and gets no session. A request for batches that have not been checked since their file was opened waits for
the check. Other requests are answered or parked before the handler returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final
from uuid import UUID

from skylog.broker.api import Api, Context
from skylog.broker.fetch_sessions import FINAL_EPOCH, FULL_EPOCH, FetchSession
from skylog.broker.held_frame import LARGE_FRAME_BYTES, HeldFrame
from skylog.broker.new_leaders import NewLeaders
from skylog.broker.parking import ParkedFetch
from skylog.broker.partition import Partition
from skylog.broker.quotas.usage import Usage
from skylog.broker.read_replicas import LEADER, RackSelector
from skylog.broker.security.access import check_topic, may
from skylog.broker.security.needs import each_topic
from skylog.broker.time_slice import TimeSlice
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
    answer_tags,
    endpoint_tags,
    fetch_reply,
    read_fetch,
)
from skylog.security.acl import AclOperation, ResourceType
from skylog.storage import UncheckedError

READ_COMMITTED: Final = 1
REPLICAS_FROM: Final = 15
"""Followers use a version that has their incarnation."""
ANY_REPLICA_FROM: Final = 11
NEW_LEADERS_FROM: Final = 16
_NO_TAGS: Final = b"\0"

Failed = Mapping[TopicPartition, KafkaError]
_NO_FAILURES: Final[Failed] = {}


class Reading:
    """The records for a request at one moment. They are counted as sent when the response is made of them.

    It `is_final` if the response must not wait: something cannot be read, or is read elsewhere. `unchecked` has the
    partitions that must be checked before they can be read, `failed` the checks that failed.
    """

    __slots__ = (
        "failed",
        "find",
        "is_final",
        "leaders",
        "left_bytes",
        "partitions",
        "read_committed",
        "rights",
        "selector",
        "sent",
        "size_bytes",
        "topics",
        "unchecked",
    )

    def __init__(self, context: Context, call: FetchCall, failed: Failed = _NO_FAILURES) -> None:
        broker = context.broker
        replicas = broker.replicas
        self.topics: TopicAnswers = []
        self.size_bytes = 0
        self.left_bytes = min(call.max_bytes, broker.config.broker.fetch_max_bytes)
        self.is_final = False
        self.rights = context.session.rights
        self.read_committed = call.isolation_level == READ_COMMITTED
        self.find: Callable[[str, int], Partition] = (
            replicas.readable if context.version >= ANY_REPLICA_FROM else replicas.leader
        )
        self.selector = RackSelector.for_rack(broker, call.rack_id) if call.rack_id else None
        self.leaders: NewLeaders | None = None
        self.partitions: list[Partition] = []
        self.sent: list[tuple[Partition, int]] = []
        self.unchecked: list[tuple[Partition, UncheckedError]] = []
        self.failed = failed

    def is_enough(self, call: FetchCall) -> bool:
        """Whether to respond with this reading rather than park the request."""
        return self.size_bytes >= call.min_bytes or self.is_final or call.max_wait_ms <= 0 or not self.partitions

    def count_as_sent(self) -> None:
        """Count the bytes of this reading, of which a response is made."""
        for partition, length in self.sent:
            partition.bytes_out += length

    def endpoint_tags(self) -> bytes:
        """Return the addresses of the leaders in this reading, encoded."""
        if self.leaders is None:
            return _NO_TAGS
        return endpoint_tags([(each.node_id, each.host, each.port, each.rack) for each in self.leaders.addresses()])


def handle_frame(context: Context, frame: memoryview, position: int) -> Reply | PendingReply | Awaitable[Reply]:
    held = HeldFrame.of_large(context.connection, frame) if len(frame) > LARGE_FRAME_BYTES else None
    if held is not None:
        return _handle_large(context, held, position)
    call = _decode(frame, position, context.version)
    if call.replica_id >= 0 and context.version >= REPLICAS_FROM:
        followers = context.broker.membership.followers
        if not may(context, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
            return _session_error(context, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if followers is not None:
            return followers.handle(context, call)
    if context.usage is not None:
        call = _within_quota(context.usage, call)
    session = None
    if call.session_id or call.session_epoch > FULL_EPOCH:
        try:
            call, session = _resume(context, call)
        except KafkaError as error:
            return _session_error(context, error.code)
    reading = _read(context, call)
    if reading.unchecked:
        return _handle_unchecked(context, call, session)
    if reading.is_enough(call):
        return _reply(context, call, reading, session)
    pending = PendingReply(context.connection)
    parked = ParkedFetch(
        reading.partitions,
        call.min_bytes - reading.size_bytes,
        call.max_wait_ms / 1000,
        lambda: pending.resolve(_reply(context, call, _read(context, call), session)),
        read_committed=reading.read_committed,
    )
    pending.on_cancel = parked.cancel
    return pending


async def _handle_large(context: Context, held: HeldFrame, position: int) -> Reply:
    loop, codec = asyncio.get_running_loop(), context.broker.codec
    with held:
        call = await loop.run_in_executor(codec, _decode, held.data, position, context.version)
    followers = context.broker.membership.followers
    if call.replica_id >= 0 and context.version >= REPLICAS_FROM and followers is not None:
        if not may(context, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
            return _session_error(context, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        reply = followers.handle(context, call._replace(max_wait_ms=0))
        assert isinstance(reply, list), "a follower's fetch without a wait is answered at once"
        return reply
    if call.session_id or call.session_epoch > FULL_EPOCH:
        context.broker.fetch_sessions.close(call.session_id)
        if call.session_epoch not in (FULL_EPOCH, FINAL_EPOCH):
            return _session_error(context, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    if context.usage is not None:
        call = _within_quota(context.usage, call)
    reading = await _wait_and_read(context, call)
    wait_ms = 0
    if context.usage is not None:
        if not context.usage.fetched(reading.size_bytes):
            return _throttled(context, context.usage, 0)
        wait_ms = context.usage.wait_ms
    reading.count_as_sent()
    return await loop.run_in_executor(codec, _encode, context, reading, reading.topics, 0, wait_ms)


async def _handle_unchecked(context: Context, call: FetchCall, session: FetchSession | None) -> Reply:
    return _reply(context, call, await _wait_and_read(context, call), session)


async def _wait_and_read(context: Context, call: FetchCall) -> Reading:
    """Wait until there are enough records, have them checked, and read them."""
    reading = await _read_and_check(context, call)
    if not reading.is_enough(call):
        grown = asyncio.get_running_loop().create_future()
        missing_bytes = call.min_bytes - reading.size_bytes
        parked = ParkedFetch(
            reading.partitions,
            missing_bytes,
            call.max_wait_ms / 1000,
            lambda: grown.set_result(None),
            read_committed=reading.read_committed,
        )
        try:
            await grown
        finally:
            parked.cancel()
        reading = await _read_and_check(context, call)
    return reading


async def _read_and_check(context: Context, call: FetchCall) -> Reading:
    """Read, and run checks until none is left to run."""
    failed: dict[TopicPartition, KafkaError] = {}
    while True:
        reading = await _read_in_turns(context, call, failed)
        if not reading.unchecked:
            return reading
        for partition, unchecked in reading.unchecked:
            try:
                await context.broker.checks.run(partition.log, unchecked)
            except KafkaError as error:
                failed[partition.name] = error


def _decode(frame: memoryview, position: int, version: int) -> FetchCall:
    """Decode a request and keep one row per partition. Raises MalformedRequestError."""
    call = read_fetch(frame, position, version)
    if len(call.topics) == 1 and len(call.topics[0][1]) == 1:
        return call
    rows_by_topic: dict[str | UUID, dict[int, PartitionCall]] = {}
    for topic, rows in call.topics:
        rows_by_topic.setdefault(topic, {}).update({row.partition: row for row in rows})
    return call._replace(topics=[(topic, list(rows.values())) for topic, rows in rows_by_topic.items()])


def _resume(context: Context, call: FetchCall) -> tuple[FetchCall, FetchSession | None]:
    """Complete an incremental request, and return it with its session. A full request ends the session it names.

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
    wait_ms = 0
    if context.usage is not None:
        if not context.usage.fetched(reading.size_bytes):
            return _throttled(context, context.usage, session.session_id if session is not None else 0)
        wait_ms = context.usage.wait_ms
    reading.count_as_sent()
    if session is not None:
        return _encode(context, reading, session.changed(reading.topics), session.session_id, wait_ms)
    session_id = 0
    if call.session_epoch == FULL_EPOCH:
        broker = context.broker
        uses_ids = context.version >= IDS_FROM
        session_id = broker.fetch_sessions.open(call, reading.topics, uses_ids, broker.clock.monotonic())
    return _encode(context, reading, reading.topics, session_id, wait_ms)


def _encode(context: Context, reading: Reading, topics: TopicAnswers, session_id: int, wait_ms: int) -> Reply:
    tags = reading.endpoint_tags() if reading.leaders is not None else _NO_TAGS
    return fetch_reply(
        context.correlation_id, context.version, 0, topics, reading.read_committed, session_id, tags, wait_ms
    )


def _within_quota(usage: Usage, call: FetchCall) -> FetchCall:
    """Return a request that asks for no more than its client's quota allows at once, as in Kafka.

    If it would wait for more than that, it waits for the first batch instead.
    """
    largest = usage.largest_fetch()
    if largest is None or largest >= call.max_bytes:
        return call
    return call._replace(max_bytes=largest, min_bytes=call.min_bytes if call.min_bytes <= largest else 1)


def _throttled(context: Context, usage: Usage, session_id: int) -> Reply:
    """Return the empty response of a consumer that is above its quota. Its session stays as it was."""
    return fetch_reply(context.correlation_id, context.version, 0, [], False, session_id, throttle_ms=usage.wait_ms)


def _read(context: Context, call: FetchCall) -> Reading:
    reading = Reading(context, call)
    for topic, rows in call.topics:
        reading.topics.append((topic, [_read_row(context, topic, row, reading) for row in rows]))
        if reading.partitions:
            context.session.note_read(reading.partitions[-1].name.topic)
    return reading


async def _read_in_turns(context: Context, call: FetchCall, failed: dict[TopicPartition, KafkaError]) -> Reading:
    time_slice = TimeSlice()
    reading = Reading(context, call, failed)
    for topic, rows in call.topics:
        answers: list[PartitionAnswer] = []
        reading.topics.append((topic, answers))
        for row in rows:
            await time_slice.yield_if_over()
            answers.append(_read_row(context, topic, row, reading))
        if reading.partitions:
            context.session.note_read(reading.partitions[-1].name.topic)
    return reading


def _read_row(context: Context, topic: str | UUID, row: PartitionCall, reading: Reading) -> PartitionAnswer:
    index, leader_epoch, offset, max_bytes, _, _ = row
    try:
        name = topic if isinstance(topic, str) else _name(context, topic)
        if reading.rights is not None:
            check_topic(context, AclOperation.READ, name)
        partition = reading.find(name, index)
        if reading.selector is not None:
            elsewhere = _redirect(partition, row, reading, reading.selector)
            if elsewhere is not None:
                return elsewhere
        partition.check_epoch(leader_epoch)
    except KafkaError as error:
        return _failed(context, topic, row, reading, error.code)
    reading.partitions.append(partition)
    log = partition.log
    error_code = length = 0
    records = None
    aborted: Sequence[tuple[int, int]] = ()
    left_bytes, is_first = reading.left_bytes, not reading.size_bytes
    if is_first or left_bytes > 0:
        try:
            records = partition.read(offset, min(max_bytes, left_bytes), is_first, reading.read_committed)
            if records is not None:
                length = records.length
                if length and reading.read_committed:
                    aborted = log.aborted_in(records, offset)
        except (KafkaError, UncheckedError) as error:
            error_code = _unreadable(context, partition, row, reading, error)
            records, length = None, 0
    if length:
        reading.size_bytes += length
        reading.left_bytes = left_bytes - length
        reading.sent.append((partition, length))
    else:
        records = None
    start_offset = log.log_start_offset
    high_watermark, stable_offset = log.high_watermark, log.last_stable_offset
    return PartitionAnswer(
        index, error_code, high_watermark, stable_offset, start_offset, records, length, _NO_TAGS, LEADER, aborted
    )


def _unreadable(
    context: Context, partition: Partition, row: PartitionCall, reading: Reading, error: KafkaError | UncheckedError
) -> int:
    """Return the error code of a partition that is here but cannot be read, or 0 if it has to be checked first."""
    if isinstance(error, UncheckedError):
        failure = reading.failed.get(partition.name)
        if failure is None:
            reading.unchecked.append((partition, error))
            return 0
        error = failure
    code = error.code
    if code is ErrorCode.OFFSET_OUT_OF_RANGE and not partition.is_leader and row.offset > partition.log.log_end_offset:
        code = ErrorCode.OFFSET_NOT_AVAILABLE  # the leader may have it
    reading.is_final = True
    context.broker.requests.errors[ApiKey.FETCH, code.name] += 1
    return code


def _redirect(
    partition: Partition, row: PartitionCall, reading: Reading, selector: RackSelector
) -> PartitionAnswer | None:
    """Return the answer that sends a consumer to a follower in its rack, or None if it reads here."""
    preferred = selector.select(partition, row.offset)
    if preferred == LEADER:
        return None
    partition.check_epoch(row.leader_epoch)
    reading.is_final = True
    log = partition.log
    watermarks = log.high_watermark, log.last_stable_offset, log.log_start_offset
    return PartitionAnswer(row.partition, 0, *watermarks, None, 0, preferred_read_replica=preferred)


def _failed(
    context: Context, topic: str | UUID, row: PartitionCall, reading: Reading, code: ErrorCode
) -> PartitionAnswer:
    """Return the answer for a partition that is not here, with the new leader if there is one."""
    reading.is_final = True
    broker = context.broker
    broker.requests.errors[ApiKey.FETCH, code.name] += 1
    tags = _NO_TAGS
    if context.version >= NEW_LEADERS_FROM and isinstance(topic, UUID):
        reading.leaders = reading.leaders or NewLeaders(broker, context.connection)
        leader = reading.leaders.find(broker.metadata.image.names.get(topic, ""), row.partition, code)
        if leader is not None:
            tags = answer_tags(leader=leader)
    return PartitionAnswer(row.partition, code, -1, -1, -1, None, 0, tags)


def _name(context: Context, topic: UUID) -> str:
    name = context.broker.metadata.image.names.get(topic)
    if name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {topic}")
    return name


API = Api(ApiKey.FETCH, 4, 17, handle_frame=handle_frame, needs=(each_topic(AclOperation.READ),))
