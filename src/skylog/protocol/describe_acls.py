"""DescribeAcls (key 29), versions 1-3: the access control lists that match a filter.

Version 1 added the type of the name's pattern (KIP-290), 2 the compact encoding. 3 only allows the resource type
"user".
"""

from __future__ import annotations

from skylog.protocol.schema import Int8, Int16, Int32, Message, field, message, struct


@message(api_key=29, versions="1-3", flexible="2+")
class DescribeAclsRequest(Message):
    resource_type_filter: Int8 = field("0+")
    resource_name_filter: str | None = field("0+", nullable="0+")
    pattern_type_filter: Int8 = field("1+", default=3)
    principal_filter: str | None = field("0+", nullable="0+")
    host_filter: str | None = field("0+", nullable="0+")
    operation: Int8 = field("0+")
    permission_type: Int8 = field("0+")


@struct
class AclDescription:
    principal: str = field("0+")
    host: str = field("0+")
    operation: Int8 = field("0+")
    permission_type: Int8 = field("0+")


@struct
class DescribeAclsResource:
    resource_type: Int8 = field("0+")
    resource_name: str = field("0+")
    pattern_type: Int8 = field("1+", default=3)
    acls: list[AclDescription] = field("0+")


@message(api_key=29, versions="1-3", flexible="2+")
class DescribeAclsResponse(Message):
    throttle_time_ms: Int32 = field("0+", default=0)
    error_code: Int16 = field("0+", default=0)
    error_message: str | None = field("0+", nullable="0+", default=None)
    resources: list[DescribeAclsResource] = field("0+", default_factory=list)
