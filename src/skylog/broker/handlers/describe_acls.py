"""DescribeAcls (29), versions 1-3: the access control lists that match a filter.

Without an authorizer it fails with SECURITY_DISABLED, as in Kafka.
"""

from __future__ import annotations

from typing import Final

from skylog.broker.api import Api, Context
from skylog.broker.security.acl_rows import filter_of
from skylog.broker.security.needs import cluster
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.apis import ApiKey
from skylog.protocol.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from skylog.security.acl import Acl, AclOperation, Resource

NO_AUTHORIZER: Final = "No Authorizer is configured on the broker"


def handle(context: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    access = context.broker.access
    if access is None:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    try:
        wanted = filter_of(request)
    except KafkaError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message)
    found: dict[Resource, list[AclDescription]] = {}
    for acl in access.authorizer.acls():
        if wanted.matches(acl):
            found.setdefault(acl.resource, []).append(_row(acl))
    return DescribeAclsResponse(
        resources=[
            DescribeAclsResource(
                resource_type=resource.type, resource_name=resource.name, pattern_type=resource.pattern, acls=rows
            )
            for resource, rows in sorted(found.items())
        ]
    )


def _row(acl: Acl) -> AclDescription:
    return AclDescription(
        principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
    )


API = Api(ApiKey.DESCRIBE_ACLS, 1, 3, handle, has_large_answers=True, needs=(cluster(AclOperation.DESCRIBE),))
