"""DeleteAcls (31), versions 1-3. There is no authorizer, so every filter fails with SECURITY_DISABLED.

Clients match results to filters by position, so a repeated filter has a result each time.
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
