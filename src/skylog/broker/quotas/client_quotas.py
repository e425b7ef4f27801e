"""The client quotas of the cluster: follows them in the metadata store, changes them, and has them enforced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from skylog.broker.quotas.active import ActiveQuotas
from skylog.broker.session import Session
from skylog.clock import Clock
from skylog.cluster.client_quotas import AllQuotas, StoredQuotas
from skylog.cluster.store import MetadataStore
from skylog.quotas import Entity, Meters, QuotaConfig, QuotaKey, QuotaRules, Quotas

if TYPE_CHECKING:
    from skylog.broker.router import Router
    from skylog.net import Listener

Decision = Callable[[Mapping[Entity, Quotas]], Mapping[Entity, Quotas]]
"""Returns the new quotas of the entities to change, given those of all. May be called several times."""


class ClientQuotas:
    """The quotas by entity, as of the last change that the store has reported."""

    def __init__(
        self, store: MetadataStore, config: QuotaConfig, clock: Clock, router: Router, listener: Listener
    ) -> None:
        self._stored = StoredQuotas(store)
        self._config = config
        self._clock = clock
        self._router = router
        self._listener = listener
        self.rules = QuotaRules({})

    async def load(self) -> None:
        await self._stored.follow(self._update)

    @property
    def active(self) -> ActiveQuotas | None:
        return self._router.quotas

    async def change(self, decide: Decision) -> None:
        """Change quotas, all in one commit. What `decide` raises leaves them as they are."""

        def decide_stored(stored: AllQuotas) -> AllQuotas:
            changed = decide(known_quotas(stored))
            return {entity: {str(key): value for key, value in found.items()} for entity, found in changed.items()}

        await self._stored.change(decide_stored)

    def _update(self, changed: AllQuotas) -> None:
        self.rules = QuotaRules({**self.rules.quotas, **known_quotas(changed)})
        self._listener.limits.connection_rate = self.rules.connection_rate
        active = self._router.quotas
        if active is not None and self.rules.has_clients:
            active.meters.change_rules(self.rules)
        elif (active is not None) != self.rules.has_clients:
            self._enforce(ActiveQuotas(Meters(self.rules, self._config), self._clock) if active is None else None)

    def _enforce(self, active: ActiveQuotas | None) -> None:
        self._router.enforce(active)
        for connection in self._listener.connections:
            if isinstance(connection.handler, Session):
                connection.handler.meter_lanes(active)


def known_quotas(stored: AllQuotas) -> dict[Entity, dict[QuotaKey, float]]:
    """Return stored quotas without those that this version does not know."""
    keys = set(QuotaKey)
    return {
        entity: {QuotaKey(name): value for name, value in quotas.items() if name in keys}
        for entity, quotas in stored.items()
    }
