"""Which quota applies to a client, by Kafka's precedence.

The first of these that has the quota counts: user and client id, user and any client id, user, any user and client id,
any user and any client id, any user, client id, any client id. Each quota is looked up by itself.

What the client uses is counted by what the rule names: a quota of a user is shared by all of the user's clients, and a
default applies to each user or client id by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import NamedTuple

from skylog.quotas.entities import CLIENT_ID, IP, USER, Entity, QuotaKey, Quotas


class Match(NamedTuple):
    """The limit that applies, and who shares it: a user, a client id, or a user's client id."""

    limit: float
    user: str | None
    client_id: str | None


class QuotaRules:
    """All quotas of a cluster. Does not change."""

    def __init__(self, quotas: Mapping[Entity, Quotas]) -> None:
        self.quotas = {entity: dict(found) for entity, found in quotas.items() if found}
        self._connection_rates = {
            None if name is None else str(ip_address(name)): found[QuotaKey.CONNECTION_CREATION_RATE]
            for ((kind, name), *_), found in self.quotas.items()
            if kind == IP
        }

    @property
    def has_clients(self) -> bool:
        """Whether there is a quota of a user or a client id."""
        return any(entity[0][0] != IP for entity in self.quotas)

    def find(self, key: QuotaKey, user: str, client_id: str) -> Match | None:
        """Return the quota of a client, None if it has none."""
        for entity, of_user, of_client in (
            (((USER, user), (CLIENT_ID, client_id)), user, client_id),
            (((USER, user), (CLIENT_ID, None)), user, client_id),
            (((USER, user),), user, None),
            (((USER, None), (CLIENT_ID, client_id)), user, client_id),
            (((USER, None), (CLIENT_ID, None)), user, client_id),
            (((USER, None),), user, None),
            (((CLIENT_ID, client_id),), None, client_id),
            (((CLIENT_ID, None),), None, client_id),
        ):
            limit = self.quotas.get(entity, {}).get(key)
            if limit is not None:
                return Match(limit, of_user, of_client)
        return None

    def connection_rate(self, address: str) -> float | None:
        """Return how many connections an address may open per second, None without a limit."""
        rates = self._connection_rates
        return rates.get(address, rates.get(None)) if rates else None
