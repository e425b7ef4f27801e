"""The rights that an API needs, as declared beside its handler."""

from __future__ import annotations

from typing import NamedTuple

from skylog.security.acl import AclOperation, ResourceType


class Need(NamedTuple):
    """One of `operations` on a resource: on the cluster, or on what the request names.

    The router checks the cluster, and a resource that is named in the `field` of the request. Without a field the
    request has rows, and the handler checks each of them.
    """

    resource: ResourceType
    operations: tuple[AclOperation, ...]
    field: str | None = None

    @property
    def is_of_request(self) -> bool:
        """Whether the router checks it."""
        return self.resource is ResourceType.CLUSTER or self.field is not None


def cluster(*operations: AclOperation) -> Need:
    """One of these operations on the cluster, for the whole request."""
    return Need(ResourceType.CLUSTER, operations)


def group(operation: AclOperation) -> Need:
    """An operation on the group of the request."""
    return Need(ResourceType.GROUP, (operation,), "group_id")


def transactional_id(operation: AclOperation) -> Need:
    """An operation on the transactional id of the request."""
    return Need(ResourceType.TRANSACTIONAL_ID, (operation,), "transactional_id")


def each_topic(*operations: AclOperation) -> Need:
    """These operations, depending on the row, on each topic of the request."""
    return Need(ResourceType.TOPIC, operations)


def each_group(*operations: AclOperation) -> Need:
    return Need(ResourceType.GROUP, operations)


def each_transactional_id(*operations: AclOperation) -> Need:
    return Need(ResourceType.TRANSACTIONAL_ID, operations)
