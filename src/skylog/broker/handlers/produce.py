"""Produce (0), versions 3-11; advertised from 0: append one batch to each of some partitions.

Batches are checked by header and CRC and written as they are; see `storage.admission` for what a topic's configuration
may add. Batches that have to be opened are opened in a thread, unless they are small. acks=0 is never answered: an
error closes the connection, which is all a client could see of it. A log that must be flushed first is acknowledged
once the fsync, shared with all who wait, has returned.

Versions 0-2 carry older message formats and are not served; they are advertised because older librdkafka concludes
from them that the broker knows compression.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Final, NamedTuple

from skylog.broker.api import Api, Context
from skylog.broker.partition import Partition
from skylog.broker.producer_lanes import ProducerLanes
from skylog.errors import ErrorCode, KafkaError
from skylog.model import INTERNAL_TOPICS
from skylog.net import PendingReply, Reply
from skylog.protocol.apis import ApiKey
from skylog.protocol.frames import response_frame
from skylog.protocol.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from skylog.protocol.produce_hot import ProduceCall, Stored, StoredRow, produce_reply, read_produce
from skylog.storage import AppendResult, Log, RejectedRecordsError

logger = logging.getLogger(__name__)

OPENED_BYTES: Final = 16 * 1024  # that a request may have opened on the event loop

Failures = dict[tuple[str, int], KafkaError]


class Unopened(NamedTuple):
    """A batch that is opened in a thread before it is stored; `row` is its place among the results of its topic."""

    partition: Partition
    batch: bytearray
    results: list[StoredRow]
    row: int


def handle_frame(
    context: Context, frame: memoryview, position: int
) -> Reply | PendingReply | Awaitable[Reply | None] | None:
    call = read_produce(frame, position, context.version)
    broker = context.broker
    now_ms = broker.clock.now_ms()
    partitions, acks = broker.partitions, call.acks
    stored: Stored = []
    failures: Failures = {}
    unflushed: list[Log] = []
    unopened: list[Unopened] = []
    opened_bytes = 0
    for topic, rows in call.topics:
        results: list[StoredRow] = []
        for index, records in rows:
            try:
                if not records or acks not in (1, -1, 0) or topic in INTERNAL_TOPICS:
                    _refuse(topic, records, acks)
                assert records is not None
                partition = partitions.get(topic, index)
                log = partition.log
                if log.admission.opens_batches:
                    opened_bytes += log.admission.opening_bytes(records)
                    if opened_bytes > OPENED_BYTES:
                        unopened.append(Unopened(partition, bytearray(records), results, len(results)))
                        results.append((index, -1, -1, -1))
                        continue
                appended = partition.append(records, now_ms, acks)
            except KafkaError as error:
                failures[topic, index] = error
                results.append((index, -1, -1, -1))
                continue
            if appended.must_flush:
                unflushed.append(log)
            results.append((index, appended.base_offset, appended.log_append_time, log.log_start_offset))
        stored.append((topic, results))
    if unopened:
        # A client that leaves does not take back what it has sent.
        return asyncio.shield(_store_unopened(context, call, stored, failures, unflushed, unopened))
    if failures:
        _note_failures(context, failures)
    elif acks != 0 and len(call.topics) == 1 and len(call.topics[0][1]) == 1:
        lanes = context.connection.state
        if lanes is None:
            lanes = context.connection.state = ProducerLanes(
                context.connection, broker.clock, broker.requests, context.version
            )
            context.connection.shortcut = lanes.serve
        lanes.learn(frame, context.version, call, partition)
    if unflushed:
        return _after_flush(context, call, stored, failures, unflushed)
    return _reply(context, call, stored, failures)


async def _store_unopened(
    context: Context,
    call: ProduceCall,
    stored: Stored,
    failures: Failures,
    unflushed: list[Log],
    unopened: list[Unopened],
) -> Reply | None:
    """Open batches in a thread, one after the other, and store them.

    The connection handles nothing else meanwhile, so a producer's batches keep their order.
    """
    budget = context.connection.budget
    for partition, batch, results, row in unopened:
        name = partition.name
        try:
            if not budget.try_acquire(len(batch)):
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "there is no memory to open another batch now, try again")
            try:
                appended = await _open_and_append(context, partition, batch, call.acks)
            finally:
                budget.release(len(batch))
        except KafkaError as error:
            failures[name.topic, name.partition] = error
            continue
        if appended.must_flush:
            unflushed.append(partition.log)
        start_offset = partition.log.log_start_offset
        results[row] = (name.partition, appended.base_offset, appended.log_append_time, start_offset)
    if failures:
        _note_failures(context, failures)
    for log in unflushed:
        try:
            await context.broker.flusher.flushed(log)
        except KafkaError as error:
            _note_flush_failure(context, failures, log, error)
    return _reply(context, call, stored, failures)


async def _open_and_append(context: Context, partition: Partition, batch: bytearray, acks: int) -> AppendResult:
    broker, log = context.broker, partition.log
    while True:
        admission = log.admission
        opened = asyncio.get_running_loop().run_in_executor(
            broker.opener, admission.admit, batch, broker.clock.now_ms()
        )
        admitted = await opened
        if log.admission is admission:  # otherwise the topic's configuration was changed meanwhile
            return partition.append_admitted(admitted, broker.clock.now_ms(), acks)


def _refuse(topic: str, records: memoryview | None, acks: int) -> None:
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is written by the broker alone")
    if acks not in (0, 1, -1):
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks}: 0, 1 and -1 (all) are known")
    if not records:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a produce request carries one batch per partition, not none")


def _reply(context: Context, call: ProduceCall, stored: Stored, failures: Failures) -> Reply | None:
    if call.acks == 0:
        if failures:
            context.connection.close()
        return None
    if not failures:
        return [produce_reply(context.correlation_id, context.version, stored)]
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic,
                partition_responses=[_describe(row, failures.get((topic, row[0]))) for row in rows],
            )
            for topic, rows in stored
        ]
    )
    return [bytes(response_frame(context.correlation_id, response, context.version))]


def _describe(row: tuple[int, int, int, int], error: KafkaError | None) -> PartitionProduceResponse:
    index, base_offset, append_time, log_start_offset = row
    if error is None:
        return PartitionProduceResponse(
            index=index, base_offset=base_offset, log_append_time_ms=append_time, log_start_offset=log_start_offset
        )
    rejected = error.records if isinstance(error, RejectedRecordsError) else {}
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=position, batch_index_error_message=reason)
            for position, reason in rejected.items()
        ],
        error_message=error.message,
    )


def _after_flush(
    context: Context, call: ProduceCall, stored: Stored, failures: Failures, unflushed: list[Log]
) -> PendingReply | None:
    """Answer when every log in `unflushed` is on disk, or has failed to get there."""
    pending = PendingReply(context.connection, pipelined=True) if call.acks != 0 else None
    missing = len(unflushed)

    def flushed(log: Log, error: KafkaError | None) -> None:
        nonlocal missing
        if error is not None:
            _note_flush_failure(context, failures, log, error)
        missing -= 1
        if not missing and pending is not None:
            pending.resolve(_reply(context, call, stored, failures))

    for log in unflushed:
        context.broker.flusher.flush(log, lambda error, log=log: flushed(log, error))  # type: ignore[misc]
    return pending


def _note_flush_failure(context: Context, failures: Failures, log: Log, error: KafkaError) -> None:
    failures[log.name.topic, log.name.partition] = error
    context.broker.requests.errors[ApiKey.PRODUCE, error.code.name] += 1


def _note_failures(context: Context, failures: Failures) -> None:
    for (topic, index), error in failures.items():
        context.broker.requests.errors[ApiKey.PRODUCE, error.code.name] += 1
        severe = error.code is ErrorCode.KAFKA_STORAGE_ERROR
        level = logging.ERROR if severe else logging.DEBUG
        logger.log(level, "produce to %s-%d by %s: %s: %s", topic, index, context.client_id, error.code.name, error)


API = Api(ApiKey.PRODUCE, 3, 11, handle_frame=handle_frame, advertised_from=0)
