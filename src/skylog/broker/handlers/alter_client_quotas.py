"""AlterClientQuotas (49), versions 0-1: there are no quotas, and none can be set.

To set one is refused with UNSUPPORTED_VERSION, for a client must not believe in a limit that nothing enforces. To
remove one succeeds, as it does in Kafka where there is none.
"""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.broker.turn import in_turns
from skylog.errors import ErrorCode
from skylog.protocol.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    QuotaAlteration,
    QuotaAlterationResult,
)
from skylog.protocol.apis import ApiKey


async def handle(_: Context, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    """An entity that is named several times is answered once; what is asked of it first counts."""
    results: dict[tuple[tuple[str, str | None], ...], QuotaAlterationResult] = {}
    async for entry in in_turns(request.entries):
        entity = tuple((part.entity_type, part.entity_name) for part in entry.entity)
        if entity not in results:
            results[entity] = _result(entry)
    return AlterClientQuotasResponse(entries=list(results.values()))


def _result(entry: QuotaAlteration) -> QuotaAlterationResult:
    if all(operation.remove for operation in entry.ops):
        return QuotaAlterationResult(entity=entry.entity)
    return QuotaAlterationResult(
        error_code=ErrorCode.UNSUPPORTED_VERSION, error_message="this broker has no quotas", entity=entry.entity
    )


API = Api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, handle)
