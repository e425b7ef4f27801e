"""Decides who may do what, by the rules of Kafka's StandardAuthorizer. Pure: no I/O, no clock.

A super user may do everything. Otherwise a rule that denies beats every rule that allows, however specific they are. A
resource without any rule is open to super users only, unless `allow.everyone.if.no.acl.found` is set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from skylog.security.acl import (
    ANY_HOST,
    EVERYBODY,
    WILDCARD,
    Acl,
    AclOperation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)

_DESCRIBING: Final = frozenset(
    {
        AclOperation.DESCRIBE,
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.ALL,
    }
)
_ALLOWING: Final[Mapping[AclOperation, frozenset[AclOperation]]] = {
    **{each: frozenset({each, AclOperation.ALL}) for each in AclOperation},
    AclOperation.DESCRIBE: _DESCRIBING,
    AclOperation.DESCRIBE_CONFIGS: frozenset(
        {AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS, AclOperation.ALL}
    ),
}
"""The operations of rules that allow an operation. A rule that denies has the operation itself, or ALL."""


class Decision(NamedTuple):
    """Whether it is allowed, and why: by this rule, or for this reason if no rule decides."""

    is_allowed: bool
    acl: Acl | None
    reason: str


class _OfType:
    """The rules for one type of resource, by name and by prefix."""

    def __init__(self) -> None:
        self.literal: dict[str, tuple[Acl, ...]] = {}
        self.prefixed: dict[str, tuple[Acl, ...]] = {}
        self._counts: Counter[int] = Counter()
        self.lengths: tuple[int, ...] = ()

    def put(self, resource: Resource, acls: tuple[Acl, ...]) -> None:
        is_prefix, name = resource.pattern is PatternType.PREFIXED, resource.name
        by_name = self.prefixed if is_prefix else self.literal
        if is_prefix:
            self._count(len(name), bool(acls) - (name in by_name))
        if acls:
            by_name[name] = acls
        else:
            by_name.pop(name, None)

    def _count(self, length: int, change: int) -> None:
        """Keep the lengths of all prefixes, so that a name is compared only with those."""
        self._counts[length] += change
        if bool(self._counts[length]) != (length in self.lengths):
            self.lengths = tuple(sorted(each for each, count in self._counts.items() if count))

    def covering(self, name: str) -> Iterator[Acl]:
        """Return all rules for a resource: by its name, by `*`, and by every prefix of its name."""
        yield from self.literal.get(name, ())
        if name != WILDCARD:
            yield from self.literal.get(WILDCARD, ())
        for length in self.lengths:
            if length > len(name):
                break
            yield from self.prefixed.get(name[:length], ())

    def all(self) -> Iterator[Acl]:
        for by_name in (self.literal, self.prefixed):
            for acls in by_name.values():
                yield from acls


class Authorizer:
    """The rules of a cluster. `epoch` grows with every change, so that decisions can be remembered until then."""

    def __init__(self, super_users: Collection[str] = (), *, allow_if_no_acl: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allow_if_no_acl = allow_if_no_acl
        self._by_type: dict[ResourceType, _OfType] = {}
        self.epoch = 0

    def put(self, resource: Resource, acls: Iterable[Acl]) -> None:
        """Replace the rules of one resource pattern; none removes them."""
        self._by_type.setdefault(resource.type, _OfType()).put(resource, tuple(acls))
        self.epoch += 1

    def acls(self) -> list[Acl]:
        return [acl for of_type in self._by_type.values() for acl in of_type.all()]

    def decide(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> Decision:
        if principal in self._super_users:
            return Decision(True, None, f"{principal} is a super user")
        of_type = self._by_type.get(resource_type)
        allowing, has_rules = None, False
        for acl in of_type.covering(name) if of_type is not None else ():
            has_rules = True
            if not _concerns(acl, principal, host, operation):
                continue
            if acl.permission is Permission.DENY:
                return Decision(False, acl, "")
            allowing = allowing or acl
        if allowing is not None:
            return Decision(True, allowing, "")
        if has_rules:
            return Decision(False, None, f"no rule allows it to {principal}")
        reason = "there is no rule for this resource"
        if self._allow_if_no_acl:
            return Decision(True, None, f"{reason}, and allow.everyone.if.no.acl.found=true")
        return Decision(False, None, reason)

    def may_on_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether there may be a resource of the type on which the operation is allowed."""
        if self.decide(principal, host, operation, resource_type, "\0").is_allowed:  # no resource has this name
            return True
        of_type = self._by_type.get(resource_type)
        if of_type is None:
            return False
        found = [acl for acl in of_type.all() if _concerns(acl, principal, host, operation)]
        denied = [acl.resource for acl in found if acl.permission is Permission.DENY]
        return any(
            acl.permission is Permission.ALLOW and not any(_excludes(each, acl.resource) for each in denied)
            for acl in found
        )


def _concerns(acl: Acl, principal: str, host: str, operation: AclOperation) -> bool:
    if acl.principal not in (principal, EVERYBODY) or acl.host not in (host, ANY_HOST):
        return False
    if acl.permission is Permission.DENY:
        return acl.operation in (operation, AclOperation.ALL)
    return acl.operation in _ALLOWING[operation]


def _excludes(denied: Resource, allowed: Resource) -> bool:
    """Whether everything that `allowed` covers is denied."""
    if denied.pattern is PatternType.LITERAL:
        return denied.name == WILDCARD or (denied.name == allowed.name and allowed.pattern is PatternType.LITERAL)
    if allowed.pattern is PatternType.LITERAL and allowed.name == WILDCARD:
        return False
    return allowed.name.startswith(denied.name)


def parse_super_users(text: str) -> frozenset[str]:
    """Return the principals in `super.users`, which separates them with semicolons."""
    return frozenset(each.strip() for each in text.split(";") if each.strip())
