"""DescribeClientQuotas (48), versions 0-1: the quotas of the entities that a filter selects (KIP-546)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from skylog.broker.api import Api, Context
from skylog.broker.security.needs import cluster
from skylog.broker.time_slice import cooperatively
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedQuota,
    DescribedQuotaEntity,
    DescribedQuotaValue,
    QuotaFilterComponent,
)
from skylog.quotas import Entity, QuotaFilter, Quotas
from skylog.quotas.entities import IP, TYPES
from skylog.security.acl import AclOperation

EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2


async def handle(context: Context, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    try:
        wanted = _filter(request.components, request.strict)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    known = list(context.broker.quotas.rules.quotas.items())
    return DescribeClientQuotasResponse(
        entries=[_row(entity, quotas) async for entity, quotas in cooperatively(known) if wanted.matches(entity)]
    )


def _row(entity: Entity, quotas: Quotas) -> DescribedQuota:
    return DescribedQuota(
        entity=[DescribedQuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[DescribedQuotaValue(key=key, value=value) for key, value in sorted(quotas.items())],
    )


def _filter(components: Sequence[QuotaFilterComponent], strict: bool) -> QuotaFilter:
    """Return what a request selects. Raises KafkaError."""
    names: dict[str, str | None] = {}
    types: set[str] = set()
    for component in components:
        _check(component)
        if component.entity_type in names or component.entity_type in types:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is more than one filter by '{component.entity_type}'")
        if component.match_type == ANY:
            types.add(component.entity_type)
        else:
            names[component.entity_type] = component.match
    if (IP in names or IP in types) and len(components) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a filter by ip cannot be combined with others")
    return QuotaFilter(names, frozenset(types), strict)


def _check(component: QuotaFilterComponent) -> None:
    if not component.entity_type:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "an entity type is empty")
    if component.entity_type not in TYPES:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"there are no quotas for '{component.entity_type[:100]}'")
    if component.match_type not in (EXACT, DEFAULT, ANY):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown match type {component.match_type}")
    if (component.match is not None) != (component.match_type == EXACT):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "an exact match requires a name, other match types have none")


API = Api(
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    0,
    1,
    handle,
    has_large_answers=True,
    needs=(cluster(AclOperation.DESCRIBE_CONFIGS),),
    refuse=lambda _, code: DescribeClientQuotasResponse(error_code=code, entries=None),
)
