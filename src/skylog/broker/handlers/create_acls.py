"""CreateAcls (30), versions 1-3: add access control lists. All valid ones of a request are added in one commit.

Clients match results to creations by position, so a repeated creation has a result each time. Without an authorizer
every creation fails with SECURITY_DISABLED, as in Kafka.
"""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.broker.handlers.describe_acls import NO_AUTHORIZER
from skylog.broker.security.acl_rows import acl_of
from skylog.broker.security.needs import cluster
from skylog.broker.store_errors import as_kafka_errors
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from skylog.security.acl import Acl, AclOperation


async def handle(context: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    access = context.broker.access
    if access is None:
        return _refuse(request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    valid: list[Acl] = []
    results: list[AclCreationResult] = []
    for creation in request.creations:
        try:
            valid.append(acl_of(creation))
        except KafkaError as error:
            results.append(AclCreationResult(error_code=error.code, error_message=error.message))
        else:
            results.append(AclCreationResult())
    try:
        with as_kafka_errors():
            await access.add(valid)
    except KafkaError as error:
        return _refuse(request, error.code, error.message)
    return CreateAclsResponse(results=results)


def _refuse(request: CreateAclsRequest, code: ErrorCode, message: str | None = None) -> CreateAclsResponse:
    refused = AclCreationResult(error_code=code, error_message=message)
    return CreateAclsResponse(results=[refused] * len(request.creations))


API = Api(ApiKey.CREATE_ACLS, 1, 3, handle, needs=(cluster(AclOperation.ALTER),), refuse=_refuse)
