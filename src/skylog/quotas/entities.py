"""Whose quota it is, and which quotas there are: Kafka's entities, keys, checks and filters (KIP-546).

An entity is a user, a client id, both, or an address. The name None is the default of its type, which applies to
each user, client id or address that has no quota of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from ipaddress import ip_address
from typing import Final, NamedTuple

from skylog.errors import ErrorCode, KafkaError

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
TYPES: Final = (USER, CLIENT_ID, IP)
MAX_LONG: Final = (1 << 63) - 1
MAX_INT: Final = (1 << 31) - 1
_FRACTION: Final = 1e-6

Entity = tuple[tuple[str, str | None], ...]
"""The types of an entity with their names, in the order of TYPES."""

Quotas = Mapping["QuotaKey", float]
"""The quotas of one entity."""


class QuotaKey(StrEnum):
    """What a quota limits, under Kafka's name."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"


_LARGEST_WHOLE: Final = {
    QuotaKey.PRODUCER_BYTE_RATE: MAX_LONG,
    QuotaKey.CONSUMER_BYTE_RATE: MAX_LONG,
    QuotaKey.CONNECTION_CREATION_RATE: MAX_INT,
}
"""The keys whose values have no fraction."""


def check_entity(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """Return the parts of an entity in order. Raises INVALID_REQUEST for one that cannot have quotas."""
    names: dict[str, str | None] = {}
    for kind, name in parts:
        if kind not in TYPES:
            raise _invalid(f"there are no quotas for '{kind[:100]}', only for {', '.join(TYPES)}")
        if kind in names:
            raise _invalid(f"the entity has more than one {kind}")
        if name == "":
            raise _invalid(f"the name of a {kind} is empty; null is the default of all")
        if kind == IP and name is not None and not _is_address(name):
            raise _invalid(f"'{name[:100]}' is not an IP address")
        names[kind] = name
    if not names:
        raise _invalid("the entity is empty")
    if IP in names and len(names) > 1:
        raise _invalid("an ip cannot be combined with a user or a client-id")
    return tuple((kind, names[kind]) for kind in TYPES if kind in names)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def apply_changes(entity: Entity, before: Quotas, changes: Sequence[tuple[str, float | None]]) -> dict[QuotaKey, float]:
    """Return the quotas of an entity after changes; None removes one. Raises INVALID_REQUEST and changes nothing."""
    after = dict(before)
    seen: set[str] = set()
    for name, value in changes:
        if name in seen:
            raise _invalid(f"{name[:100]} is changed twice")
        seen.add(name)
        key = _key_of(entity, name)
        if value is None:
            after.pop(key, None)
        else:
            _check_value(key, value)
            after[key] = value
    return after


def _key_of(entity: Entity, name: str) -> QuotaKey:
    is_of_address = entity[0][0] == IP
    allowed = [key for key in QuotaKey if (key is QuotaKey.CONNECTION_CREATION_RATE) == is_of_address]
    if name not in allowed:
        whose = "an ip" if is_of_address else "users and client-ids"
        raise _invalid(f"'{name[:100]}' is no quota of {whose}; there are {', '.join(allowed)}")
    return QuotaKey(name)


def _check_value(key: QuotaKey, value: float) -> None:
    if not value > 0:  # also not a number
        raise _invalid(f"{key} must be greater than 0")
    largest = _LARGEST_WHOLE.get(key)
    if largest is not None:
        if value > largest:
            raise _invalid(f"{key} must be at most {largest}")
        if value % 1 > _FRACTION:
            raise _invalid(f"{key} must be a whole number")


def describe_entity(entity: Entity) -> str:
    """Return an entity in words: `user alice, any client-id`."""
    return ", ".join(f"any {kind}" if name is None else f"{kind} {name}" for kind, name in entity)


class QuotaFilter(NamedTuple):
    """Selects entities by `names` (None is the default) and by `types` with any name; `strict`: those with no other."""

    names: Mapping[str, str | None]
    types: frozenset[str] = frozenset()
    strict: bool = False

    def matches(self, entity: Entity) -> bool:
        parts = dict(entity)
        if self.strict and len(parts) != len(self.names) + len(self.types):
            return False
        return self.types <= parts.keys() and all(
            kind in parts and parts[kind] == name for kind, name in self.names.items()
        )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
