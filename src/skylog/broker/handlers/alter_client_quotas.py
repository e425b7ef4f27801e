"""AlterClientQuotas (49), versions 0-1: there are no quotas, and none can be set.

Setting a quota fails with UNSUPPORTED_VERSION, because the broker would not enforce it. Removing one succeeds, as in
Kafka if there is none.
"""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.broker.security.needs import cluster
from skylog.broker.time_slice import cooperatively
from skylog.errors import ErrorCode
from skylog.protocol.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    QuotaAlteration,
    QuotaAlterationResult,
)
from skylog.protocol.apis import ApiKey
from skylog.security.acl import AclOperation


async def handle(_: Context, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    """Return one result per entity. If an entity is repeated, its first entry counts."""
    results: dict[tuple[tuple[str, str | None], ...], QuotaAlterationResult] = {}
    async for entry in cooperatively(request.entries):
        entity = tuple((part.entity_type, part.entity_name) for part in entry.entity)
        if entity not in results:
            results[entity] = _result(entry)
    return AlterClientQuotasResponse(entries=list(results.values()))


def _refuse(request: AlterClientQuotasRequest, code: ErrorCode) -> AlterClientQuotasResponse:
    rows = [QuotaAlterationResult(error_code=code, entity=entry.entity) for entry in request.entries]
    return AlterClientQuotasResponse(entries=rows)


def _result(entry: QuotaAlteration) -> QuotaAlterationResult:
    if all(operation.remove for operation in entry.ops):
        return QuotaAlterationResult(entity=entry.entity)
    return QuotaAlterationResult(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        error_message="this broker does not support quotas",
        entity=entry.entity,
    )


API = Api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, handle, needs=(cluster(AclOperation.ALTER_CONFIGS),), refuse=_refuse)
