"""AddPartitionsToTxn (24), versions 0-5: add partitions to a transaction before producing to them.

The first one begins the transaction. It is stored before the response, so that every partition gets its marker in the
end. If one partition does not exist, none is added. Versions 4 and 5 are for brokers: the leader of a partition asks
the coordinator whether the partition is part of a transaction (KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from skylog.broker.api import Api, Context
from skylog.broker.security.access import may
from skylog.broker.security.needs import each_topic, each_transactional_id
from skylog.broker.transaction_errors import fencing_code
from skylog.broker.unique_names import unique_by_topic
from skylog.errors import ErrorCode, KafkaError
from skylog.model import INTERNAL_TOPICS, TopicPartition
from skylog.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from skylog.protocol.apis import ApiKey
from skylog.security.acl import AclOperation, ResourceType
from skylog.transactions import Producer

FIRST_OF_BROKERS: Final = 4
FENCED_FROM: Final = 2
ABORTABLE_FROM: Final = 5

Results = Mapping[TopicPartition, ErrorCode]


async def handle(context: Context, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    if context.version >= FIRST_OF_BROKERS:
        if not may(context, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
            return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        rows = {each.transactional_id: each for each in request.transactions}
        results = []
        for each in rows.values():
            names = _names(each.topics)
            producer = Producer(each.producer_id, each.producer_epoch)
            if each.verify_only:
                found = _verify(context, each.transactional_id, producer, names)
            else:
                found = await _add(context, each.transactional_id, producer, names)
            results.append(AddPartitionsToTxnResult(transactional_id=each.transactional_id, topic_results=_rows(found)))
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    if not may(context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        refused = dict.fromkeys(_names(request.v3_and_below_topics), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_rows(refused))
    found = await _add(
        context,
        request.v3_and_below_transactional_id,
        Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
        _names(request.v3_and_below_topics),
    )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_rows(found))


async def _add(context: Context, transactional_id: str, producer: Producer, names: Sequence[TopicPartition]) -> Results:
    unknown = {name: code for name in names if (code := _check(context, name)) is not ErrorCode.NONE}
    if unknown:
        return {name: unknown.get(name, ErrorCode.OPERATION_NOT_ATTEMPTED) for name in names}
    try:
        shard = context.broker.transactions.shard(transactional_id)
        await shard.add_partitions(transactional_id, producer, names, context.session.number)
    except KafkaError as error:
        return dict.fromkeys(names, fencing_code(error, context.version, fenced_from=FENCED_FROM))
    return dict.fromkeys(names, ErrorCode.NONE)


def _check(context: Context, name: TopicPartition) -> ErrorCode:
    if context.version < FIRST_OF_BROKERS and not may(context, AclOperation.WRITE, ResourceType.TOPIC, name.topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if name.topic in INTERNAL_TOPICS:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    try:
        context.broker.topics.partition(*name)
        context.broker.mirrors.check_may_write(name.topic)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def _verify(context: Context, transactional_id: str, producer: Producer, names: Sequence[TopicPartition]) -> Results:
    try:
        shard = context.broker.transactions.shard(transactional_id)
        found = shard.verify(transactional_id, producer, names)
    except KafkaError as error:
        return dict.fromkeys(names, error.code)
    if context.version < ABORTABLE_FROM:
        return found
    return {
        name: ErrorCode.TRANSACTION_ABORTABLE if code is ErrorCode.INVALID_TXN_STATE else code
        for name, code in found.items()
    }


def _names(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    asked = unique_by_topic((topic.name, topic.partitions) for topic in topics)
    return [TopicPartition(topic, index) for topic, indexes in asked.items() for index in indexes]


def _rows(results: Results) -> list[AddPartitionsToTxnTopicResult]:
    by_topic: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for name, code in results.items():
        row = AddPartitionsToTxnPartitionResult(partition_index=name.partition, partition_error_code=code)
        by_topic.setdefault(name.topic, []).append(row)
    return [AddPartitionsToTxnTopicResult(name=topic, results_by_partition=rows) for topic, rows in by_topic.items()]


API = Api(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    0,
    5,
    handle,
    needs=(each_transactional_id(AclOperation.WRITE), each_topic(AclOperation.WRITE)),
)
