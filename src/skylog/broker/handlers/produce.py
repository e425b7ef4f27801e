"""Produce (0), versions 3-11, advertised from 0: append one batch to each of some partitions.

Batches are checked by header and CRC and written unchanged, unless the topic's configuration demands more (see
`storage.admission`). Batches that have to be opened are opened in a thread, unless they are small. There is no response
to acks=0; an error closes the connection. A request that is not committed at once, because of its topic's flush policy
or replicas, is acknowledged when it is. If the replicas take longer than the request's timeout, the response is
REQUEST_TIMED_OUT, and NOT_ENOUGH_REPLICAS_AFTER_APPEND if too few of them stay in sync; the batch stays in the log.

A batch that begins a transaction in a partition is verified with the coordinator of the transaction first (KIP-890).

Version 10 added the new leader to NOT_LEADER_OR_FOLLOWER (KIP-951), 11 the error TRANSACTION_ABORTABLE.

Versions 0-2 carry older message formats and are not served. They are advertised because older librdkafka concludes from
them that the broker supports compression.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from typing import Final, NamedTuple

from skylog.broker.api import Api, Context
from skylog.broker.commits import Append
from skylog.broker.new_leaders import NewLeaders
from skylog.broker.partition import Partition
from skylog.broker.producer_lanes import ProducerLanes, is_in_transaction
from skylog.broker.rejected_batches import RejectedBatches
from skylog.broker.security.access import may
from skylog.broker.security.needs import each_topic, each_transactional_id
from skylog.broker.transaction_verifier import first_batches
from skylog.errors import ErrorCode, KafkaError
from skylog.limited_logger import LimitedLogger
from skylog.model import INTERNAL_TOPICS, TopicPartition
from skylog.net import PendingReply, Reply
from skylog.protocol.apis import ApiKey
from skylog.protocol.frames import response_frame
from skylog.protocol.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from skylog.protocol.produce_hot import ProduceCall, Stored, StoredRow, produce_reply, read_produce
from skylog.security.acl import AclOperation, ResourceType
from skylog.storage import AppendResult, RejectedRecordsError
from skylog.transactions import Producer

logger = logging.getLogger(__name__)
limited_logger = LimitedLogger(logger)

OPENED_BYTES: Final = 16 * 1024  # a request may have opened on the event loop

ABORTABLE_FROM: Final = 11

Failures = dict[tuple[str, int], KafkaError]
Stamps = Mapping[TopicPartition, int | KafkaError]
Errors = list[tuple[Partition, KafkaError]]


class Unopened(NamedTuple):
    """A batch to be opened in a thread before it is stored. `row` is its index in the results of its topic."""

    partition: Partition
    batch: bytearray
    results: list[StoredRow]
    row: int
    verified_at: int | None


class Outcome(NamedTuple):
    """What has become of the batches of a request."""

    stored: Stored
    failures: Failures
    uncommitted: list[Append]
    unopened: list[Unopened]


def handle_frame(
    context: Context, frame: memoryview, position: int
) -> Reply | PendingReply | Awaitable[Reply | None] | None:
    call = read_produce(frame, position, context.version)
    if context.usage is not None:
        context.usage.produced(len(frame))
    if call.transactional_id is not None and _may_use_id(context, call):
        first = first_batches(context.broker, call)
        if first:
            return asyncio.shield(_verify_and_store(context, bytearray(frame), position, first))
    outcome = _append_all(context, call, {})
    stored, failures, uncommitted, unopened = outcome
    if unopened:
        # The batches are stored even if the client disconnects.
        return asyncio.shield(_finish(context, call, outcome))
    if failures:
        _note_failures(context, failures)
    elif call.acks != 0 and len(call.topics) == 1 and len(call.topics[0][1]) == 1:
        _learn_lane(context, frame, call)
    if uncommitted:
        return _after_commit(context, call, stored, failures, uncommitted)
    return _reply(context, call, stored, failures)


async def _verify_and_store(
    context: Context, frame: bytearray, position: int, first: dict[Producer, list[Partition]]
) -> Reply | None:
    """Verify the batches that begin a transaction, then store all of them. The frame is a copy that stays valid."""
    call = read_produce(memoryview(frame), position, context.version)
    budget = context.connection.budget
    assert call.transactional_id is not None
    stamps: dict[TopicPartition, int | KafkaError] = {}
    if budget.try_acquire(len(frame)):
        try:
            for producer, partitions in first.items():
                stamps |= await context.broker.transactions.verifier.verify(call.transactional_id, producer, partitions)
            outcome = _append_all(context, call, stamps)
        finally:
            budget.release(len(frame))
    else:
        error = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "there is no memory to verify another batch now, try again")
        names = [TopicPartition(topic, index) for topic, rows in call.topics for index, _ in rows]
        outcome = _append_all(context, call, dict.fromkeys(names, error))
    if context.version >= ABORTABLE_FROM:
        for name, error in outcome.failures.items():
            if error.code is ErrorCode.INVALID_TXN_STATE:
                outcome.failures[name] = KafkaError(ErrorCode.TRANSACTION_ABORTABLE, error.message)
    return await _finish(context, call, outcome)


def _append_all(context: Context, call: ProduceCall, stamps: Stamps) -> Outcome:
    """Append the batches of a request, except those that must be opened in a thread."""
    broker = context.broker
    now_ms = broker.clock.now_ms()
    replicas, acks, rejected = broker.replicas, call.acks, context.session.rejected
    rights = context.session.rights
    stored: Stored = []
    failures: Failures = {}
    uncommitted: list[Append] = []
    unopened: list[Unopened] = []
    opened_bytes = 0
    for topic, rows in call.topics:
        results: list[StoredRow] = []
        if rights is not None and (denied := _denied(context, call, topic)) is not None:
            failures.update({(topic, index): denied for index, _ in rows})
            stored.append((topic, [(index, -1, -1, -1) for index, _ in rows]))
            continue
        context.session.note_written(topic)
        for index, records in rows:
            try:
                _check(topic, records, acks)
                assert records is not None
                if rights is not None and call.transactional_id is None and is_in_transaction(records):
                    raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "the transactional id is missing")
                partition = replicas.leader(topic, index)
                log = partition.log
                if rejected is not None:
                    rejected.check(partition.name, records, log.producers)
                verified_at = _stamp(stamps, partition) if stamps else None
                if log.admission.opens_batches:
                    opened_bytes += log.admission.opening_bytes(records)
                    if opened_bytes > OPENED_BYTES:
                        batch = bytearray(records)
                        unopened.append(Unopened(partition, batch, results, len(results), verified_at))
                        results.append((index, -1, -1, -1))
                        continue
                appended = partition.append(records, now_ms, acks, verified_at)
            except KafkaError as error:
                failures[topic, index] = error.without_frames()
                results.append((index, -1, -1, -1))
                if records:
                    _note_rejected(context, topic, index, records, error)
                continue
            if not broker.commits.is_committed(partition, appended, acks):
                uncommitted.append((partition, appended))
            results.append((index, appended.base_offset, appended.log_append_time, log.log_start_offset))
        stored.append((topic, results))
    return Outcome(stored, failures, uncommitted, unopened)


def _may_use_id(context: Context, call: ProduceCall) -> bool:
    """Whether the client may write transactions with the id of a request."""
    assert call.transactional_id is not None
    return may(context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, call.transactional_id)


def _denied(context: Context, call: ProduceCall, topic: str) -> KafkaError | None:
    """Return why a client may not write to a topic, None if it may."""
    if call.transactional_id is not None and not _may_use_id(context, call):
        return KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not may(context, AclOperation.WRITE, ResourceType.TOPIC, topic):
        return KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return None


def _note_rejected(context: Context, topic: str, index: int, records: memoryview, error: KafkaError) -> None:
    session = context.session
    if session.rejected is None:
        session.rejected = RejectedBatches()
    session.rejected.note(TopicPartition(topic, index), records, error)


def _stamp(stamps: Stamps, partition: Partition) -> int | None:
    """Return the stamp of a verified batch, None for one that needs none. Raises KafkaError for one that failed."""
    stamp = stamps.get(partition.name)
    if isinstance(stamp, KafkaError):
        raise stamp
    return stamp


def _learn_lane(context: Context, frame: memoryview, call: ProduceCall) -> None:
    """Let further requests of this form take the fast lane."""
    broker, session = context.broker, context.session
    if not broker.router.has_fast_lanes:
        return
    ((topic, ((index, _),)),) = call.topics
    partition = broker.replicas.leader(topic, index)
    if not partition.answers_at_once(call.acks):
        return
    if session.lanes is None:
        lanes = ProducerLanes(session.connection, broker.clock, broker.requests, context.version, session.rights)
        session.open_lanes(lanes, broker.router.quotas)
    assert session.lanes is not None
    session.lanes.learn(frame, context.version, call, partition)


async def _finish(context: Context, call: ProduceCall, outcome: Outcome) -> Reply | None:
    """Open batches in a thread, one after the other, and store them. Wait until all are committed.

    The connection handles nothing else meanwhile, so a producer's batches keep their order.
    """
    stored, failures, uncommitted, unopened = outcome
    budget = context.connection.budget
    for partition, batch, results, row, verified_at in unopened:
        name = partition.name
        try:
            if not budget.try_acquire(len(batch)):
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "there is no memory to open another batch now, try again")
            try:
                appended = await _open_and_append(context, partition, batch, call.acks, verified_at)
            finally:
                budget.release(len(batch))
        except KafkaError as error:
            failures[name.topic, name.partition] = error.without_frames()
            _note_rejected(context, *name, memoryview(batch), error)
            continue
        uncommitted.append((partition, appended))
        start_offset = partition.log.log_start_offset
        results[row] = (name.partition, appended.base_offset, appended.log_append_time, start_offset)
    if failures:
        _note_failures(context, failures)
    if uncommitted:
        settled: asyncio.Future[Errors] = asyncio.get_running_loop().create_future()
        context.broker.commits.when_all_committed(uncommitted, call.acks, call.timeout_ms, settled.set_result)
        _note_uncommitted(context, failures, await settled)
    return _reply(context, call, stored, failures)


async def _open_and_append(
    context: Context, partition: Partition, batch: bytearray, acks: int, verified_at: int | None
) -> AppendResult:
    broker, log = context.broker, partition.log
    while True:
        admission = log.admission
        opened = asyncio.get_running_loop().run_in_executor(
            broker.opener, admission.admit, batch, broker.clock.now_ms()
        )
        admitted = await opened
        if log.admission is admission:  # otherwise the topic was reconfigured meanwhile
            return partition.append_admitted(admitted, broker.clock.now_ms(), acks, verified_at)


def _check(topic: str, records: memoryview | None, acks: int) -> None:
    """Raise KafkaError unless clients may send this. A lane repeats a request that has passed, so it need not ask."""
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"only the broker writes to {topic}")
    if acks not in (0, 1, -1):
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks}: must be 0, 1 or -1 (all)")
    if not records:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a produce request must have one batch per partition")


def _reply(context: Context, call: ProduceCall, stored: Stored, failures: Failures) -> Reply | None:
    if call.acks == 0:
        if failures:
            context.connection.close()
        return None
    wait_ms = context.usage.settle() if context.usage is not None else 0
    if not failures:
        return [produce_reply(context.correlation_id, context.version, stored, wait_ms)]
    leaders = NewLeaders(context.broker, context.connection)
    response = ProduceResponse(
        throttle_time_ms=wait_ms,
        responses=[
            TopicProduceResponse(
                name=topic,
                partition_responses=[_describe(leaders, topic, row, failures.get((topic, row[0]))) for row in rows],
            )
            for topic, rows in stored
        ],
    )
    response.node_endpoints = [
        NodeEndpoint(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
        for each in leaders.addresses()
    ]
    return [bytes(response_frame(context.correlation_id, response, context.version))]


def _describe(
    leaders: NewLeaders, topic: str, row: tuple[int, int, int, int], error: KafkaError | None
) -> PartitionProduceResponse:
    index, base_offset, append_time, log_start_offset = row
    if error is None:
        return PartitionProduceResponse(
            index=index, base_offset=base_offset, log_append_time_ms=append_time, log_start_offset=log_start_offset
        )
    rejected = error.records if isinstance(error, RejectedRecordsError) else {}
    leader = leaders.find(topic, index, error.code)
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=position, batch_index_error_message=reason)
            for position, reason in rejected.items()
        ],
        error_message=error.message,
        current_leader=LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1]) if leader else None,
    )


def _after_commit(
    context: Context, call: ProduceCall, stored: Stored, failures: Failures, uncommitted: list[Append]
) -> PendingReply | None:
    """Respond when every append in `uncommitted` is committed, has failed or is late."""
    pending = PendingReply(context.connection, pipelined=True) if call.acks != 0 else None

    def settled(errors: Errors) -> None:
        _note_uncommitted(context, failures, errors)
        if pending is not None and not context.connection.closed:
            pending.resolve(_reply(context, call, stored, failures))

    context.broker.commits.when_all_committed(uncommitted, call.acks, call.timeout_ms, settled)
    return pending


def _note_uncommitted(context: Context, failures: Failures, errors: Errors) -> None:
    for partition, error in errors:
        failures[partition.name.topic, partition.name.partition] = error
        context.broker.requests.errors[ApiKey.PRODUCE, error.code.name] += 1


def _note_failures(context: Context, failures: Failures) -> None:
    for (topic, index), error in failures.items():
        context.broker.requests.errors[ApiKey.PRODUCE, error.code.name] += 1
        severe = error.code is ErrorCode.KAFKA_STORAGE_ERROR  # clients repeat such a request as fast as they can
        log = limited_logger.error if severe else logger.debug
        log("produce to %s-%d by %s: %s: %s", topic, index, context.client_id, error.code.name, error)


API = Api(
    ApiKey.PRODUCE,
    3,
    11,
    handle_frame=handle_frame,
    advertised_from=0,
    needs=(each_topic(AclOperation.WRITE), each_transactional_id(AclOperation.WRITE)),
)
