"""CreateAcls (30), versions 1-3. There is no authorizer, so every creation fails with SECURITY_DISABLED.

Clients match results to creations by position, so a repeated creation has a result each time.
"""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.broker.handlers.describe_acls import NO_AUTHORIZER
from skylog.errors import ErrorCode
from skylog.protocol.apis import ApiKey
from skylog.protocol.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


def handle(_: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return CreateAclsResponse(results=[refused] * len(request.creations))


API = Api(ApiKey.CREATE_ACLS, 1, 3, handle)
