"""AlterClientQuotas (49), versions 0-1: set and remove quotas of users, client ids and addresses (KIP-546).

Each entity has one result, and its quotas change together or not at all. An entity that is repeated in a request is not
changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from skylog.broker.api import Api, Context
from skylog.broker.security.needs import cluster
from skylog.broker.store_errors import as_kafka_errors
from skylog.broker.time_slice import cooperatively
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    QuotaAlteration,
    QuotaAlterationResult,
)
from skylog.protocol.apis import ApiKey
from skylog.quotas import Entity, Quotas, apply_changes, check_entity
from skylog.security.acl import AclOperation

Parts = tuple[tuple[str, str | None], ...]
Changes = dict[Entity, list[tuple[str, float | None]]]


async def handle(context: Context, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    counts = Counter([_parts(entry) async for entry in cooperatively(request.entries)])
    results: dict[Parts, QuotaAlterationResult] = {}
    changes: Changes = {}
    changed: dict[Entity, Parts] = {}
    async for entry in cooperatively(request.entries):
        parts = _parts(entry)
        if parts in results:
            continue
        results[parts] = QuotaAlterationResult(entity=entry.entity)
        try:
            entity, wanted = _checked(entry, counts[parts], changes)
        except KafkaError as error:
            _fail(results[parts], error)
        else:
            changes[entity], changed[entity] = wanted, parts
    if changes and not request.validate_only:
        try:
            with as_kafka_errors():
                await context.broker.quotas.change(lambda before: _decide(before, changes))
        except KafkaError as error:
            for parts in changed.values():
                _fail(results[parts], error)
    return AlterClientQuotasResponse(entries=list(results.values()))


def _parts(entry: QuotaAlteration) -> Parts:
    return tuple(sorted(((part.entity_type, part.entity_name) for part in entry.entity), key=str))


def _checked(entry: QuotaAlteration, times: int, others: Changes) -> tuple[Entity, list[tuple[str, float | None]]]:
    """Return an entity and the changes of its quotas. Raises KafkaError."""
    entity = check_entity((part.entity_type, part.entity_name) for part in entry.entity)
    if times > 1 or entity in others:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the entity appears {times} times in the request")
    wanted = [(operation.key, None if operation.remove else operation.value) for operation in entry.ops]
    apply_changes(entity, {}, wanted)
    return entity, wanted


def _decide(before: Mapping[Entity, Quotas], changes: Changes) -> dict[Entity, Quotas]:
    return {entity: apply_changes(entity, before.get(entity, {}), wanted) for entity, wanted in changes.items()}


def _fail(row: QuotaAlterationResult, error: KafkaError) -> None:
    row.error_code, row.error_message = error.code, error.message


def _refuse(request: AlterClientQuotasRequest, code: ErrorCode) -> AlterClientQuotasResponse:
    rows = [QuotaAlterationResult(error_code=code, entity=entry.entity) for entry in request.entries]
    return AlterClientQuotasResponse(entries=rows)


API = Api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, handle, needs=(cluster(AclOperation.ALTER_CONFIGS),), refuse=_refuse)
