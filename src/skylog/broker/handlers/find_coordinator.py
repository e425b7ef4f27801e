"""FindCoordinator (10), versions 0-5: who coordinates a group. From version 4 on, of many groups at once (KIP-699).

The first question for a group creates the offsets topic. There is no coordinator for transactions. A transactional
producer needs an error that it does not retry until its own limit: librdkafka and all other clients give up on
TRANSACTIONAL_ID_AUTHORIZATION_FAILED. The message names the real reason.
"""

from __future__ import annotations

from typing import Final

from skylog.broker.api import Api, Context
from skylog.broker.repeats import once
from skylog.broker.turn import in_turns
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP: Final = 0
TRANSACTION: Final = 1


async def handle(context: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    keys = once(request.coordinator_keys) if context.version >= 4 else [request.key]
    template = await _find(context, request.key_type)
    if context.version >= 4:
        coordinators = [_named(key, template) async for key in in_turns(keys)]
        return FindCoordinatorResponse(coordinators=coordinators)
    return FindCoordinatorResponse(
        error_code=template.error_code,
        error_message=template.error_message,
        node_id=template.node_id,
        host=template.host,
        port=template.port,
    )


async def _find(context: Context, key_type: int) -> Coordinator:
    """The answer for every key: there is one broker."""
    broker = context.broker
    try:
        _check(key_type)
        await broker.coordinator.ensure_topic()
    except KafkaError as error:
        return Coordinator(key="", node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message)
    address = broker.addresses(context.connection)[0]
    return Coordinator(key="", node_id=address.node_id, host=address.host, port=address.port)


def _check(key_type: int) -> None:
    if key_type == TRANSACTION:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "this broker serves no transactions; produce without a transactional id",
        )
    if key_type != GROUP:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown key type {key_type}")


def _named(key: str, template: Coordinator) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=template.node_id,
        host=template.host,
        port=template.port,
        error_code=template.error_code,
        error_message=template.error_message,
    )


API = Api(ApiKey.FIND_COORDINATOR, 0, 5, handle)
