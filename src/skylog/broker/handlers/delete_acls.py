"""DeleteAcls (31), versions 1-3: remove the access control lists that match filters, all in one commit.

Clients match results to filters by position, so a repeated filter has a result each time. Without an authorizer every
filter fails with SECURITY_DISABLED, as in Kafka.
"""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.broker.handlers.describe_acls import NO_AUTHORIZER
from skylog.broker.security.acl_rows import filter_of
from skylog.broker.security.needs import cluster
from skylog.broker.store_errors import as_kafka_errors
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from skylog.security.acl import Acl, AclFilter, AclOperation


async def handle(context: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    access = context.broker.access
    if access is None:
        return _refuse(request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    filters: list[AclFilter | KafkaError] = []
    for wanted in request.filters:
        try:
            filters.append(filter_of(wanted))
        except KafkaError as error:
            filters.append(error)
    try:
        with as_kafka_errors():
            removed = await access.remove([each for each in filters if isinstance(each, AclFilter)])
    except KafkaError as error:
        return _refuse(request, error.code, error.message)
    return DeleteAclsResponse(filter_results=[_result(each, removed) for each in filters])


def _result(wanted: AclFilter | KafkaError, removed: list[Acl]) -> DeleteAclsFilterResult:
    if isinstance(wanted, KafkaError):
        return DeleteAclsFilterResult(error_code=wanted.code, error_message=wanted.message)
    return DeleteAclsFilterResult(matching_acls=[_row(acl) for acl in removed if wanted.matches(acl)])


def _row(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        resource_type=acl.resource.type,
        resource_name=acl.resource.name,
        pattern_type=acl.resource.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _refuse(request: DeleteAclsRequest, code: ErrorCode, message: str | None = None) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(error_code=code, error_message=message)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))


API = Api(ApiKey.DELETE_ACLS, 1, 3, handle, needs=(cluster(AclOperation.ALTER),), refuse=_refuse)
