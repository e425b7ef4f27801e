"""TxnOffsetCommit (28), versions 0-4: commit offsets of a group as part of a transaction.

The offsets are stored in the offsets topic as records of the transaction. They count when it commits. From version 3 on
the member and its generation are checked, so that a consumer that has lost its partitions cannot commit (KIP-447).
"""

from __future__ import annotations

from typing import Final

from skylog.broker.api import Api, Context
from skylog.broker.group_shard import MemberId
from skylog.broker.handlers.offset_commit import Errors, Offsets, response_topics, validate_all
from skylog.broker.security.needs import each_topic, group, transactional_id
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from skylog.security.acl import AclOperation
from skylog.transactions import Producer

ABORTABLE_FROM: Final = 4


async def handle(context: Context, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    try:
        offsets, errors = await validate_all(context, request.topics)
        if offsets:
            await _commit(context, request, offsets)
    except KafkaError as error:
        return await _response(request, {}, _for_producer(error.code, context.version))
    return await _response(request, errors, ErrorCode.NONE)


async def _refuse(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    return await _response(request, {}, code)


async def _commit(context: Context, request: TxnOffsetCommitRequest, offsets: Offsets) -> None:
    broker = context.broker
    member = MemberId(request.member_id, request.group_instance_id, request.generation_id)
    producer = Producer(request.producer_id, request.producer_epoch)
    shard = broker.coordinator.shard(request.group_id)
    name = broker.coordinator.partition_of(request.group_id)
    partition = broker.replicas.leader(*name)
    if not partition.has_open_transaction(*producer):
        verified = await broker.transactions.verifier.verify(request.transactional_id, producer, [partition])
        found = verified[name]
        if isinstance(found, KafkaError):
            raise found
        if found != partition.verification_stamp(producer.producer_id):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the transaction has ended meanwhile")
    # The append, which is the first step of this, must follow the check without a pause.
    await shard.commit_in_transaction(request.group_id, member, producer, offsets, context.session.number)


def _for_producer(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.NOT_ENOUGH_REPLICAS:  # the coordinator of the transaction cannot be asked now
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if code is ErrorCode.INVALID_TXN_STATE and version >= ABORTABLE_FROM:
        return ErrorCode.TRANSACTION_ABORTABLE
    return code


async def _response(request: TxnOffsetCommitRequest, errors: Errors, default: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=await response_topics(
            request.topics, errors, default, TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition
        )
    )


API = Api(
    ApiKey.TXN_OFFSET_COMMIT,
    0,
    4,
    handle,
    needs=(transactional_id(AclOperation.WRITE), group(AclOperation.READ), each_topic(AclOperation.READ)),
    refuse=_refuse,
)
