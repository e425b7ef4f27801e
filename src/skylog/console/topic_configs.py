"""What topics keep and for how long, remembered for a while: lists show it, and it seldom changes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

from skylog.client import Admin
from skylog.console.cluster import Clients, Cluster
from skylog.errors import ErrorCode, KafkaError

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
        """By topic; one that has just been deleted is missing."""
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
        found |= _describe_some(clients.admin, names[at : at + _AT_ONCE])
    return found


def _describe_some(admin: Admin, names: list[str]) -> dict[str, Values]:
    try:
        described = admin.describe_configs_of(names)
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        if len(names) == 1:
            return {}
        return {topic: values for name in names for topic, values in _describe_some(admin, [name]).items()}
    return {name: {each.name: each.value for each in values if each.name in KEYS} for name, values in described.items()}
