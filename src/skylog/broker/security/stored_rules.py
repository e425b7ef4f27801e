"""Access control lists in the form of the metadata store: rules below their resource pattern."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from skylog.cluster.acls import AllRules, Rules, StoredResource
from skylog.security.acl import Acl, AclFilter, PatternType, Resource, ResourceType


def resource_of(stored: StoredResource) -> Resource:
    return Resource(ResourceType[stored.type], PatternType[stored.pattern], stored.name)


def acls_of(stored: StoredResource, rules: Rules) -> list[Acl]:
    resource = resource_of(stored)
    return [Acl.from_value(resource, rule) for rule in rules]


def with_acls(before: AllRules, new: Iterable[Acl]) -> AllRules:
    """Return the rules with others added. Those that exist stay as they are."""
    after = {stored: dict.fromkeys(acls_of(stored, rules)) for stored, rules in before.items()}
    for acl in new:
        kind, pattern, name = acl.resource
        after.setdefault(StoredResource(kind.name, pattern.name, name), {})[acl] = None
    return {stored: [acl.to_value() for acl in acls] for stored, acls in after.items()}


def without_acls(before: AllRules, filters: Sequence[AclFilter]) -> tuple[AllRules, list[Acl]]:
    """Return the rules that match none of the filters, and those that were removed."""
    after: dict[StoredResource, Rules] = {}
    removed: list[Acl] = []
    for stored, rules in before.items():
        for acl in acls_of(stored, rules):
            if any(each.matches(acl) for each in filters):
                removed.append(acl)
            else:
                after.setdefault(stored, []).append(acl.to_value())
    return after, removed
