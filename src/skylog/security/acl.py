"""An access control list entry: who may or may not do what, to which resources, from where. Numbers are Kafka's."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from skylog.errors import ConfigError


class ResourceType(IntEnum):
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a name is compared. ANY and MATCH are for filters: MATCH finds all patterns that apply to a name."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """Kafka's operations. The number is also the bit in a set of operations (KIP-430)."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class Permission(IntEnum):
    ANY = 1
    DENY = 2
    ALLOW = 3


CLUSTER_NAME: Final = "kafka-cluster"
WILDCARD: Final = "*"
EVERYBODY: Final = "User:*"
ANY_HOST: Final = "*"

_ADMINISTRATION: Final = (AclOperation.DELETE, AclOperation.ALTER)
OPERATIONS: Final = {
    ResourceType.TOPIC: frozenset(
        {
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.CREATE,
            AclOperation.DESCRIBE,
            *_ADMINISTRATION,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        }
    ),
    ResourceType.GROUP: frozenset({AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE}),
    ResourceType.CLUSTER: frozenset(
        {
            AclOperation.CREATE,
            AclOperation.CLUSTER_ACTION,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
            AclOperation.IDEMPOTENT_WRITE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
        }
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset({AclOperation.DESCRIBE, AclOperation.WRITE}),
}
"""The operations that a resource has. Others, and other resources, cannot be in an entry."""


class Resource(NamedTuple):
    """The resources that a rule applies to: one by name, all that begin with a prefix, or all of a type (`*`)."""

    type: ResourceType
    pattern: PatternType
    name: str

    def covers(self, name: str) -> bool:
        if self.pattern is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)


class Acl(NamedTuple):
    resource: Resource
    principal: str
    host: str
    operation: AclOperation
    permission: Permission

    def __str__(self) -> str:
        kind, pattern, name = self.resource
        what = f"{kind.name.lower()} {name}" + ("…" if pattern is PatternType.PREFIXED else "")
        where = "" if self.host == ANY_HOST else f" from {self.host}"
        return f"{self.permission.name.lower()} {self.principal} {self.operation.name.lower()} on {what}{where}"

    def to_value(self) -> dict[str, str]:
        """Return the rule as it is stored below its resource."""
        return {
            "principal": self.principal,
            "host": self.host,
            "operation": self.operation.name,
            "permission": self.permission.name,
        }

    @classmethod
    def from_value(cls, resource: Resource, value: dict[str, str]) -> Acl:
        operation, permission = AclOperation[value["operation"]], Permission[value["permission"]]
        return cls(resource, value["principal"], value["host"], operation, permission)

    def check(self) -> None:
        """Raise ConfigError if Kafka would not accept the entry."""
        kind, pattern, name = self.resource
        if kind not in OPERATIONS:
            raise ConfigError(f"there are no ACLs for resources of the type {kind.name}")
        if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
            raise ConfigError(f"an ACL has a literal or prefixed name, not {pattern.name}")
        if not name:
            raise ConfigError("the name of the resource is empty")
        if kind is ResourceType.CLUSTER and name != CLUSTER_NAME:
            raise ConfigError(f"the only cluster is named {CLUSTER_NAME}")
        if self.operation is not AclOperation.ALL and self.operation not in OPERATIONS[kind]:
            raise ConfigError(f"{kind.name.lower()} has no operation {self.operation.name}")
        if self.permission not in (Permission.ALLOW, Permission.DENY):
            raise ConfigError("an ACL allows or denies")
        if not self.host:
            raise ConfigError("the host is empty: * is any host")
        check_principal(self.principal)


def check_principal(principal: str) -> None:
    """Raise ConfigError unless `principal` has Kafka's form, such as User:alice."""
    kind, _, name = principal.partition(":")
    if kind != "User" or not name:
        raise ConfigError(f"a principal has the form User:NAME, not '{principal}'")


class AclFilter(NamedTuple):
    """Finds entries. None, and ANY, match everything."""

    type: ResourceType = ResourceType.ANY
    pattern: PatternType = PatternType.ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        return (
            self.type in (ResourceType.ANY, acl.resource.type)
            and self._has_name(acl.resource)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _has_name(self, resource: Resource) -> bool:
        if self.pattern is PatternType.MATCH:
            return self.name is None or resource.covers(self.name)
        return self.pattern in (PatternType.ANY, resource.pattern) and self.name in (None, resource.name)


Kind = TypeVar("Kind", bound=IntEnum)


def parse_kind(kind: type[Kind], text: str) -> Kind:
    """Return the member with this name, in any case and with - for _. Raises ConfigError."""
    try:
        return kind[text.upper().replace("-", "_")]
    except KeyError:
        known = ", ".join(each.name.lower().replace("_", "-") for each in kind)
        raise ConfigError(f"'{text}' is not one of {known}") from None
