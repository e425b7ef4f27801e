"""DescribeClientQuotas (48), versions 0-1: there are no quotas. Filters are validated as in Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from skylog.broker.api import Api, Context
from skylog.broker.security.needs import cluster
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaFilterComponent,
)
from skylog.security.acl import AclOperation

EXACT: Final = 0
MATCH_TYPES: Final = (EXACT, 1, 2)  # this name, the default, any name
IP: Final = "ip"
ENTITY_TYPES: Final = ("user", "client-id", IP)


def handle(_: Context, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    try:
        _check(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    return DescribeClientQuotasResponse(entries=[])


def _check(components: Sequence[QuotaFilterComponent]) -> None:
    seen: set[str] = set()
    for component in components:
        _check_component(component)
        if component.entity_type in seen:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is more than one filter by '{component.entity_type}'")
        seen.add(component.entity_type)
    if IP in seen and len(seen) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a filter by ip cannot be combined with others")


def _check_component(component: QuotaFilterComponent) -> None:
    if not component.entity_type:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "an entity type is empty")
    if component.entity_type not in ENTITY_TYPES:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"there are no quotas for '{component.entity_type[:100]}'")
    if component.match_type not in MATCH_TYPES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown match type {component.match_type}")
    if (component.match is not None) != (component.match_type == EXACT):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "an exact match requires a name, other match types have none")


API = Api(
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    0,
    1,
    handle,
    needs=(cluster(AclOperation.DESCRIBE_CONFIGS),),
    refuse=lambda _, code: DescribeClientQuotasResponse(error_code=code, entries=None),
)
