"""Administration of access control lists through a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from skylog.client.cluster_requests import ClusterRequests
from skylog.client.connection import Connection
from skylog.protocol.describe_acls import DescribeAclsRequest, DescribeAclsResource
from skylog.security import acl as model
from skylog.security.acl import Acl, AclFilter, PatternType, Permission, Resource
from skylog.security.authorizer import Authorizer, parse_super_users


class AclAdmin:
    """Adds, lists and removes the access control lists of a cluster."""

    def __init__(self, bootstrap: str | Connection | None = None) -> None:
        self._connection = bootstrap if isinstance(bootstrap, Connection) else Connection(bootstrap)
        self._admin = self._connection.admin_client()

    def add(self, acls: Iterable[Acl]) -> None:
        """Add entries. Raises SkylogError."""
        self._connection.metadata(self._admin)
        self._finish(self._admin.create_acls([_binding(acl) for acl in acls]), "cannot add the ACLs")

    def find(self, wanted: AclFilter) -> list[Acl]:
        """Return the entries that match a filter. Raises SkylogError, also if the broker has no authorizer."""
        request = DescribeAclsRequest(
            resource_type_filter=wanted.type,
            resource_name_filter=wanted.name,
            pattern_type_filter=wanted.pattern,
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=wanted.operation,
            permission_type=wanted.permission,
        )
        # Not with librdkafka, which returns an empty list if the broker refuses it.
        rows = ClusterRequests(self._connection, self._admin).ask_any(request, "cannot list the ACLs").resources
        return sorted(acl for row in rows for acl in _acls(row))

    def remove(self, wanted: AclFilter) -> list[Acl]:
        """Remove the entries that match a filter, and return them. Raises SkylogError."""
        self._connection.metadata(self._admin)
        removed = self._finish(self._admin.delete_acls([_filter(wanted)]), "cannot remove the ACLs")
        return sorted(_acl(each) for found in removed for each in found)

    def authorizer(self) -> Authorizer:
        """Return the rules that the cluster has, with the super users of one of its brokers. Raises SkylogError."""
        acls = self.find(AclFilter())
        settings = self._settings()
        made = Authorizer(
            parse_super_users(settings.get("super.users") or ""),
            allow_if_no_acl=settings.get("allow.everyone.if.no.acl.found") == "true",
        )
        for resource in {acl.resource for acl in acls}:
            made.put(resource, [acl for acl in acls if acl.resource == resource])
        return made

    def _settings(self) -> dict[str, str | None]:
        """Return the settings of a broker."""
        node_id = min(self._connection.metadata(self._admin).brokers)
        resource = ConfigResource(ConfigResource.Type.BROKER, str(node_id))
        (found,) = self._finish(self._admin.describe_configs([resource]), "cannot read the settings of a broker")
        return {name: entry.value for name, entry in found.items()}

    def _finish(self, futures: Any, doing: str) -> list[Any]:
        try:
            return [future.result(self._connection.timeout_s) for future in futures.values()]
        except KafkaException as error:
            raise self._connection.error(error, doing) from error


def _binding(acl: Acl) -> AclBinding:
    return AclBinding(
        ResourceType(acl.resource.type),
        acl.resource.name,
        ResourcePatternType(acl.resource.pattern),
        acl.principal,
        acl.host,
        AclOperation(acl.operation),
        AclPermissionType(acl.permission),
    )


def _filter(wanted: AclFilter) -> AclBindingFilter:
    make: Any = AclBindingFilter  # its types do not know that None matches everything
    found: AclBindingFilter = make(
        ResourceType(wanted.type),
        wanted.name,
        ResourcePatternType(wanted.pattern),
        wanted.principal,
        wanted.host,
        AclOperation(wanted.operation),
        AclPermissionType(wanted.permission),
    )
    return found


def _acls(found: DescribeAclsResource) -> list[Acl]:
    resource = Resource(model.ResourceType(found.resource_type), PatternType(found.pattern_type), found.resource_name)
    return [
        Acl(resource, row.principal, row.host, model.AclOperation(row.operation), Permission(row.permission_type))
        for row in found.acls
    ]


def _acl(found: Any) -> Acl:
    """Return an entry of librdkafka, an AclBinding, as one of ours."""
    resource = Resource(
        model.ResourceType(found.restype.value), PatternType(found.resource_pattern_type.value), found.name
    )
    operation, permission = model.AclOperation(found.operation.value), Permission(found.permission_type.value)
    return Acl(resource, found.principal, found.host, operation, permission)
