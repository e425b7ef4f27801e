"""DeleteAcls (31), versions 1-3. There is no authorizer, so every filter is answered with SECURITY_DISABLED.

Clients match answers to what they asked by position: here a repeated row is answered again.
"""

from __future__ import annotations

from skylog.broker.api import Api, Context
from skylog.broker.handlers.describe_acls import NO_AUTHORIZER
from skylog.errors import ErrorCode
from skylog.protocol.apis import ApiKey
from skylog.protocol.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


def handle(_: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))


API = Api(ApiKey.DELETE_ACLS, 1, 3, handle)
