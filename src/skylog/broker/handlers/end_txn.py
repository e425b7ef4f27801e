"""EndTxn (26), versions 0-4: commit or abort a transaction.

The response comes when the decision is stored on all replicas in sync. The markers follow: until the partitions have
them, the next transaction of the same producer gets CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from typing import Final

from skylog.broker.api import Api, Context
from skylog.broker.security.needs import transactional_id
from skylog.broker.transaction_errors import fencing_code
from skylog.errors import KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.end_txn import EndTxnRequest, EndTxnResponse
from skylog.security.acl import AclOperation
from skylog.transactions import Producer

FENCED_FROM: Final = 2


async def handle(context: Context, request: EndTxnRequest) -> EndTxnResponse:
    producer = Producer(request.producer_id, request.producer_epoch)
    try:
        shard = context.broker.transactions.shard(request.transactional_id)
        await shard.end(request.transactional_id, producer, request.committed, context.session.number)
    except KafkaError as error:
        return EndTxnResponse(error_code=fencing_code(error, context.version, fenced_from=FENCED_FROM))
    return EndTxnResponse()


API = Api(ApiKey.END_TXN, 0, 4, handle, needs=(transactional_id(AclOperation.WRITE),))
