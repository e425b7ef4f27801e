"""DescribeAcls (29), versions 1-3. There is no authorizer, so it fails with SECURITY_DISABLED, as in Kafka."""

from __future__ import annotations

from typing import Final

from skylog.broker.api import Api, Context
from skylog.errors import ErrorCode
from skylog.protocol.apis import ApiKey
from skylog.protocol.describe_acls import DescribeAclsRequest, DescribeAclsResponse

NO_AUTHORIZER: Final = "No Authorizer is configured on the broker"


def handle(_: Context, __: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)


API = Api(ApiKey.DESCRIBE_ACLS, 1, 3, handle)
