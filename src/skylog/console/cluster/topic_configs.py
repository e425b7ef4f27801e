"""Caches the retention settings of topics for the list of topics."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

from skylog.console.cluster.client_pool import ClientPool, Clients

KEYS: Final = ("cleanup.policy", "retention.ms", "retention.bytes")
MAX_AGE_S: Final = 30.0
_TOPICS_PER_REQUEST: Final = 200

Values = Mapping[str, str | None]


class TopicConfigs:
    """The values of KEYS for every topic, at most MAX_AGE_S old. Call it from the event loop only."""

    def __init__(self, cluster: ClientPool) -> None:
        self._cluster = cluster
        self._cached: dict[str, Values] = {}
        self._cached_at = float("-inf")

    def forget(self, topic: str) -> None:
        """Drop a topic from the cache after a change."""
        self._cached.pop(topic, None)

    async def of(self, topics: Iterable[str]) -> Mapping[str, Values]:
        """Return values by topic. A topic that was just deleted is missing; one that we may not read has no values."""
        names = list(topics)
        if time.monotonic() - self._cached_at > MAX_AGE_S:
            self._cached.clear()
            self._cached_at = time.monotonic()
        missing = [name for name in names if name not in self._cached]
        if missing:
            self._cached |= await self._cluster.run(lambda clients: _describe(clients, missing))
        return self._cached


def _describe(clients: Clients, names: list[str]) -> dict[str, Values]:
    found: dict[str, Values] = {}
    for start in range(0, len(names), _TOPICS_PER_REQUEST):
        for name, values in clients.admin.visible_configs_of(names[start : start + _TOPICS_PER_REQUEST]).items():
            found[name] = {each.name: each.value for each in values or () if each.name in KEYS}
    return found
