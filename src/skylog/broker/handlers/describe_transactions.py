"""DescribeTransactions (65), version 0: the state of transactional ids that this broker coordinates."""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.broker.security.access import check, sees
from skylog.broker.security.needs import each_transactional_id
from skylog.broker.time_slice import cooperatively
from skylog.broker.unique_names import unique
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionTopic,
)
from skylog.security.acl import AclOperation, ResourceType
from skylog.transactions import TransactionEntry


async def handle(context: Context, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_describe(context, each) async for each in cooperatively(unique(request.transactional_ids))]
    )


def _describe(context: Context, transactional_id: str) -> DescribedTransaction:
    try:
        check(context, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        entry = _find(context, transactional_id)
    except KafkaError as error:
        return DescribedTransaction(transactional_id=transactional_id, error_code=error.code)
    by_topic: dict[str, list[int]] = {}
    for name in sorted(entry.partitions):
        if sees(context, AclOperation.DESCRIBE, ResourceType.TOPIC, name.topic):
            by_topic.setdefault(name.topic, []).append(name.partition)
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=entry.state.value,
        transaction_timeout_ms=entry.timeout_ms,
        transaction_start_time_ms=entry.start_ms,
        producer_id=entry.producer.producer_id,
        producer_epoch=entry.producer.epoch,
        topics=[TransactionTopic(topic=topic, partitions=indexes) for topic, indexes in by_topic.items()],
    )


def _find(context: Context, transactional_id: str) -> TransactionEntry:
    entry = context.broker.transactions.shard(transactional_id).find(transactional_id)
    if entry is None:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return entry


API = Api(
    ApiKey.DESCRIBE_TRANSACTIONS,
    0,
    0,
    handle,
    has_large_answers=True,
    needs=(each_transactional_id(AclOperation.DESCRIBE),),
)
