"""Fetch (1), versions 4-17: read batches from partitions, waiting for them where there are none yet.

The answer is sent from the segment files. Where less than `min_bytes` is there, the request is parked until appends to
its partitions make up for it or `max_wait_ms` has passed. Fetch sessions are declined: every answer has session 0.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from skylog.broker.api import Api, Context
from skylog.broker.parking import ParkedFetch
from skylog.broker.partition import Partition
from skylog.errors import ErrorCode, KafkaError
from skylog.net import PendingReply, Reply
from skylog.protocol.apis import ApiKey
from skylog.protocol.fetch_hot import (
    FetchCall,
    PartitionAnswer,
    PartitionCall,
    TopicAnswers,
    fetch_reply,
    read_fetch,
)


class Reading(NamedTuple):
    """What the log has for a request at one moment. It counts as sent; see `_take_back`."""

    topics: TopicAnswers
    size_bytes: int
    has_errors: bool
    partitions: list[Partition]


def handle_frame(context: Context, frame: memoryview, position: int) -> Reply | PendingReply | None:
    call = read_fetch(frame, position, context.version)
    if call.session_id:
        code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        return fetch_reply(context.correlation_id, context.version, code, [], read_committed=False)
    reading = _read(context, call)
    if reading.has_errors or reading.size_bytes >= call.min_bytes or call.max_wait_ms <= 0 or not reading.partitions:
        return _reply(context, call, reading)
    if reading.size_bytes:
        _take_back(reading)
    pending = PendingReply(context.connection)
    parked = ParkedFetch(
        reading.partitions,
        call.min_bytes - reading.size_bytes,
        call.max_wait_ms / 1000,
        lambda: pending.resolve(_reply(context, call, _read(context, call))),
    )
    pending.on_cancel = parked.cancel
    return pending


def _reply(context: Context, call: FetchCall, reading: Reading) -> Reply:
    return fetch_reply(context.correlation_id, context.version, 0, reading.topics, call.isolation_level == 1)


def _read(context: Context, call: FetchCall) -> Reading:
    broker = context.broker
    left_bytes = min(call.max_bytes, broker.config.broker.fetch_max_bytes)
    size_bytes = 0
    has_errors = False
    partitions = []
    topics: TopicAnswers = []
    for topic, rows in call.topics:
        answers = []
        for row in rows:
            try:
                partition = broker.partitions.get(_name(context, topic), row.partition)
                answer = _read_partition(partition, row, left_bytes, size_bytes == 0)
            except KafkaError as error:
                has_errors = True
                broker.requests.errors[ApiKey.FETCH, error.code.name] += 1
                answers.append(PartitionAnswer(row.partition, error.code, -1, -1, -1, None, 0))
                continue
            partitions.append(partition)
            if answer.error_code:
                has_errors = True
                broker.requests.errors[ApiKey.FETCH, ErrorCode(answer.error_code).name] += 1
            length = answer.records_length
            size_bytes += length
            left_bytes -= length
            partition.bytes_out += length
            answers.append(answer)
        topics.append((topic, answers))
    return Reading(topics, size_bytes, has_errors, partitions)


def _take_back(reading: Reading) -> None:
    """The request is not answered with this reading, which has no errors: its bytes are not sent."""
    answers = [answer for _, rows in reading.topics for answer in rows]
    for partition, answer in zip(reading.partitions, answers, strict=True):
        partition.bytes_out -= answer.records_length


def _name(context: Context, topic: str | UUID) -> str:
    if isinstance(topic, str):
        return topic
    name = context.broker.metadata.image.names.get(topic)
    if name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {topic}")
    return name


def _read_partition(partition: Partition, row: PartitionCall, left_bytes: int, at_least_one: bool) -> PartitionAnswer:
    log = partition.log
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
