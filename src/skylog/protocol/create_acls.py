"""CreateAcls (key 30), versions 1-3: create access control lists; one result each, in the order of the request.

Version 1 added the type of the name's pattern (KIP-290), 2 the compact encoding. 3 only allows the resource type
"user".
"""

from __future__ import annotations

from skylog.protocol.schema import Int8, Int16, Int32, Message, field, message, struct


@struct
class AclCreation:
    resource_type: Int8 = field("0+")
    resource_name: str = field("0+")
    resource_pattern_type: Int8 = field("1+", default=3)
    principal: str = field("0+")
    host: str = field("0+")
    operation: Int8 = field("0+")
    permission_type: Int8 = field("0+")


@message(api_key=30, versions="1-3", flexible="2+")
class CreateAclsRequest(Message):
    creations: list[AclCreation] = field("0+")


@struct
class AclCreationResult:
    error_code: Int16 = field("0+", default=0)
    error_message: str | None = field("0+", nullable="0+", default=None)


@message(api_key=30, versions="1-3", flexible="2+")
class CreateAclsResponse(Message):
    throttle_time_ms: Int32 = field("0+", default=0)
    results: list[AclCreationResult] = field("0+")
