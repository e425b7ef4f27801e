"""Access control lists in the protocol's form: the entries and the filters of requests."""

from __future__ import annotations

from skylog.errors import ConfigError, ErrorCode, KafkaError
from skylog.protocol.create_acls import AclCreation
from skylog.protocol.delete_acls import DeleteAclsFilter
from skylog.protocol.describe_acls import DescribeAclsRequest
from skylog.security.acl import Acl, AclFilter, AclOperation, PatternType, Permission, Resource, ResourceType


def acl_of(row: AclCreation) -> Acl:
    """Return the entry to create. Raises KafkaError (INVALID_REQUEST) if there is no such entry."""
    try:
        resource = Resource(ResourceType(row.resource_type), PatternType(row.resource_pattern_type), row.resource_name)
        operation, permission = AclOperation(row.operation), Permission(row.permission_type)
        acl = Acl(resource, row.principal, row.host, operation, permission)
        acl.check()
    except (ValueError, ConfigError) as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
    return acl


def filter_of(row: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """Return the filter of a request. Raises KafkaError (INVALID_REQUEST)."""
    try:
        return AclFilter(
            ResourceType(row.resource_type_filter),
            PatternType(row.pattern_type_filter),
            row.resource_name_filter,
            row.principal_filter,
            row.host_filter,
            AclOperation(row.operation),
            Permission(row.permission_type),
        )
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
