"""InitProducerId (22), versions 0-5: a fresh id for an idempotent producer.

Whatever id a producer without a transactional id brings along, it gets a new one: its old batches stay known under the
old id, and @platformatic/kafka sends 0 where -1 is meant. Transactional ids are not served: see `find_coordinator` for
the error.
"""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


async def handle(context: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        code = (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if request.transactional_id else ErrorCode.INVALID_REQUEST
        )
        return InitProducerIdResponse(error_code=code)
    try:
        producer_id = await context.broker.metadata.next_producer_id()
    except KafkaError as error:
        return InitProducerIdResponse(error_code=error.code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


API = Api(ApiKey.INIT_PRODUCER_ID, 0, 5, handle)
