"""What topics keep and for how long, remembered for a while: lists show it, and it seldom changes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

from skylog.console.cluster import Clients, Cluster

KEYS: Final = ("cleanup.policy", "retention.ms", "retention.bytes")
FRESH_S: Final = 30.0
_AT_ONCE: Final = 200

Values = Mapping[str, str | None]


class TopicConfigs:
    """Some keys of every topic's configuration, at most FRESH_S old. Lives on the event loop."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[str, Values] = {}
        self._asked_at = float("-inf")

    def forget(self, topic: str) -> None:
        """Somebody has changed it."""
        self._known.pop(topic, None)

    async def of(self, topics: Iterable[str]) -> Mapping[str, Values]:
        """By topic; one that has just been deleted is missing, one that we may not see has no values."""
        names = list(topics)
        if time.monotonic() - self._asked_at > FRESH_S:
            self._known.clear()
            self._asked_at = time.monotonic()
        missing = [name for name in names if name not in self._known]
        if missing:
            self._known |= await self._cluster.ask(lambda clients: _describe(clients, missing))
        return self._known


def _describe(clients: Clients, names: list[str]) -> dict[str, Values]:
    found: dict[str, Values] = {}
    for at in range(0, len(names), _AT_ONCE):
        for name, values in clients.admin.visible_configs_of(names[at : at + _AT_ONCE]).items():
            found[name] = {each.name: each.value for each in values or () if each.name in KEYS}
    return found
