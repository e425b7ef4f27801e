"""InitProducerId (22), versions 0-5: an id and epoch for an idempotent or transactional producer.

A producer without a transactional id gets a new id, whichever id it sends: its old batches stay known under the old id,
and @platformatic/kafka sends 0 instead of -1. A broker that has lost the metadata store cannot reserve ids. It answers
COORDINATOR_LOAD_IN_PROGRESS, as in Kafka, and clients try again.

A transactional id has one producer id, and each start of a producer raises the epoch, which fences the one before it.
From version 3 on a producer can name its present id and epoch, to go on after an error (KIP-360).
"""

from __future__ import annotations

from typing import Final

from skylog.broker.api import Api, Context
from skylog.broker.security.access import check
from skylog.broker.security.needs import each_topic, each_transactional_id
from skylog.broker.transaction_errors import fencing_code
from skylog.cluster import SessionExpiredError
from skylog.errors import ErrorCode, KafkaError
from skylog.model import NO_PRODUCER_ID
from skylog.protocol.apis import ApiKey
from skylog.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from skylog.security.acl import AclOperation, ResourceType
from skylog.transactions import Producer

FENCED_FROM: Final = 4


async def handle(context: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    try:
        _check_rights(context, request)
        if request.transactional_id is not None:
            producer = await _start(context, request, request.transactional_id)
        else:
            producer = Producer(await context.broker.metadata.next_producer_id(), 0)
    except SessionExpiredError:
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    except KafkaError as error:
        return InitProducerIdResponse(error_code=fencing_code(error, context.version, fenced_from=FENCED_FROM))
    return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)


def _check_rights(context: Context, request: InitProducerIdRequest) -> None:
    """Raise KafkaError unless the client may have a producer: it must have the right to write something."""
    if request.transactional_id is not None:
        check(context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        return
    rights = context.session.rights
    if rights is not None and not rights.may_on_any(AclOperation.WRITE, ResourceType.TOPIC):
        check(context, AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)


async def _start(context: Context, request: InitProducerIdRequest, transactional_id: str) -> Producer:
    expected = Producer(request.producer_id, request.producer_epoch)
    if (expected.producer_id == NO_PRODUCER_ID) != (expected.epoch < 0):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a producer id needs an epoch, and an epoch a producer id")
    shard = context.broker.transactions.shard(transactional_id)
    return await shard.init_producer_id(
        transactional_id, request.transaction_timeout_ms, None if expected.epoch < 0 else expected
    )


API = Api(
    ApiKey.INIT_PRODUCER_ID,
    0,
    5,
    handle,
    needs=(each_transactional_id(AclOperation.WRITE), each_topic(AclOperation.WRITE)),
)
