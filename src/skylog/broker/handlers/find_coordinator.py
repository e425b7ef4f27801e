"""FindCoordinator (10), versions 0-5: the coordinator of a group or a transactional id, from 4 on of several (KIP-699).

The coordinator of a group is the leader of its partition of the offsets topic, that of a transactional id the leader of
its partition of the topic of transactions. The first request creates the topic. While there is no coordinator, the
response has COORDINATOR_NOT_AVAILABLE, and clients retry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from skylog.broker.api import Api, Context
from skylog.broker.group_coordinator import GroupCoordinator
from skylog.broker.security.access import ERRORS, may
from skylog.broker.security.needs import each_group, each_transactional_id
from skylog.broker.time_slice import cooperatively
from skylog.broker.transaction_coordinator import TransactionCoordinator
from skylog.broker.unique_names import unique
from skylog.cluster import BrokerImage
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from skylog.security.acl import AclOperation, ResourceType

GROUP: Final = 0
TRANSACTION: Final = 1


async def handle(context: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    keys = unique(request.coordinator_keys) if context.version >= 4 else [request.key]
    kind = ResourceType.GROUP if request.key_type == GROUP else ResourceType.TRANSACTIONAL_ID
    denied = {key for key in keys if not may(context, AclOperation.DESCRIBE, kind, key)}
    try:
        coordinator = _coordinator(context, request.key_type)
        if keys and denied.issuperset(keys):
            raise KafkaError(ERRORS[kind])
        await coordinator.ensure_topic()
    except KafkaError as error:
        found = [_refuse(key, error) async for key in cooperatively(keys)]
    else:
        addresses = {each.node_id: each for each in context.broker.addresses(context.connection)}
        refused = KafkaError(ERRORS[kind])
        found = [
            _refuse(key, refused) if key in denied else _find(coordinator, key, addresses)
            async for key in cooperatively(keys)
        ]
    if context.version >= 4:
        return FindCoordinatorResponse(coordinators=found)
    return FindCoordinatorResponse(
        error_code=found[0].error_code,
        error_message=found[0].error_message,
        node_id=found[0].node_id,
        host=found[0].host,
        port=found[0].port,
    )


def _find(
    coordinator: GroupCoordinator | TransactionCoordinator, key: str, addresses: Mapping[int, BrokerImage]
) -> Coordinator:
    address = addresses.get(coordinator.find(key))
    if address is None:
        return _refuse(
            key, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no broker leads the partition of '{key}'")
        )
    return Coordinator(key=key, node_id=address.node_id, host=address.host, port=address.port)


def _refuse(key: str, error: KafkaError) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message)


def _coordinator(context: Context, key_type: int) -> GroupCoordinator | TransactionCoordinator:
    if key_type == GROUP:
        return context.broker.coordinator
    if key_type == TRANSACTION:
        return context.broker.transactions
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown key type {key_type}")


API = Api(
    ApiKey.FIND_COORDINATOR,
    0,
    5,
    handle,
    needs=(each_group(AclOperation.DESCRIBE), each_transactional_id(AclOperation.DESCRIBE)),
)
