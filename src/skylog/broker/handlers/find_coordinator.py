"""FindCoordinator (10), versions 0-5: who coordinates a group. From version 4 on, of many groups at once (KIP-699).

The first question for a group creates the offsets topic. There is no coordinator for transactions.
"""

from __future__ import annotations

from typing import Final

from skylog.broker.api import Api, Context
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP: Final = 0


async def handle(context: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if context.version >= 4 else [request.key]
    found = [await _find(context, key, request.key_type) for key in keys]
    if context.version >= 4:
        return FindCoordinatorResponse(coordinators=found)
    only = found[0]
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


async def _find(context: Context, key: str, key_type: int) -> Coordinator:
    broker = context.broker
    try:
        if key_type != GROUP:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "transactions are not served")
        await broker.coordinator.ensure_topic()
    except KafkaError as error:
        return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message)
    address = broker.addresses(context.connection)[0]
    return Coordinator(key=key, node_id=address.node_id, host=address.host, port=address.port)


API = Api(ApiKey.FIND_COORDINATOR, 0, 5, handle)
