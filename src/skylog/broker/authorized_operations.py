"""The operations that a client may perform on a resource, as a bit set in responses (KIP-430).

Without an authorizer, Kafka returns every operation of the resource type.
"""

from __future__ import annotations

from typing import Final

from skylog.broker.api import Context
from skylog.security.acl import CLUSTER_NAME, OPERATIONS, AclOperation, ResourceType

NOT_REQUESTED: Final = -(2**31)
"""Returned instead if the request does not ask for the operations."""
_ALL: Final = {kind: sum(1 << each for each in operations) for kind, operations in OPERATIONS.items()}


def operations_on(context: Context, resource_type: ResourceType, name: str) -> int:
    """Return what the client may do with a resource."""
    rights, operations = context.session.rights, OPERATIONS[resource_type]
    if rights is None:
        return _ALL[resource_type]
    return sum(1 << each for each in operations if rights.sees(each, resource_type, name))


def operations_on_cluster(context: Context) -> int:
    """Return what the client may do with the cluster; nothing, as in Kafka, if it may not describe it."""
    rights = context.session.rights
    if rights is not None and not rights.sees(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return operations_on(context, ResourceType.CLUSTER, CLUSTER_NAME)
