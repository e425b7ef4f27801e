"""AddOffsetsToTxn (25), versions 0-4: announce that a transaction commits offsets of a group.

It adds the group's partition of the offsets topic to the transaction, so that it gets a marker like any other.
"""

from __future__ import annotations

from typing import Final

from skylog.broker.api import Api, Context
from skylog.broker.security.needs import group, transactional_id
from skylog.broker.transaction_errors import fencing_code
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from skylog.protocol.apis import ApiKey
from skylog.security.acl import AclOperation
from skylog.transactions import Producer

FENCED_FROM: Final = 2


async def handle(context: Context, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    broker = context.broker
    try:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        shard = broker.transactions.shard(request.transactional_id)
        await broker.coordinator.ensure_topic()
        name = broker.coordinator.partition_of(request.group_id)
        producer = Producer(request.producer_id, request.producer_epoch)
        await shard.add_partitions(request.transactional_id, producer, [name], context.session.number)
    except KafkaError as error:
        code = fencing_code(error, context.version, fenced_from=FENCED_FROM)
        return AddOffsetsToTxnResponse(error_code=code)
    return AddOffsetsToTxnResponse()


API = Api(
    ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, handle, needs=(transactional_id(AclOperation.WRITE), group(AclOperation.READ))
)
