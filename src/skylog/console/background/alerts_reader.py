"""Keeps the alerts of the monitoring job, as its topic has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from skylog.alert import ALERTS_TOPIC, Alert, AlertError, AlertState
from skylog.client import Message
from skylog.console.background.topic_reader import TopicReader
from skylog.console.cluster.client_pool import ClientPool

MAX_ALERTS: Final = 1000


class AlertsReader:
    """Keeps the last change of every alert. Call it from the event loop."""

    def __init__(self, cluster: ClientPool) -> None:
        self._alerts: dict[bytes | None, Alert] = {}
        self.topic = TopicReader(cluster, ALERTS_TOPIC, self._add, self._alerts.clear)

    async def alerts(self) -> Sequence[Alert]:
        """Return the alerts, raised ones first, the latest change first. At most MAX_ALERTS are kept."""
        await self.topic.request()
        found = list(self._alerts.copy().values())
        return sorted(found, key=lambda alert: (alert.state is AlertState.CLEARED, -alert.at_ms, alert.name))

    def _add(self, message: Message) -> None:
        try:
            alert = Alert.decode(message.value or b"")
        except AlertError:
            self._alerts.pop(message.key, None)  # a tombstone; and any client can write to the topic
            return
        self._alerts[message.key] = alert
        if len(self._alerts) > MAX_ALERTS:
            del self._alerts[min(self._alerts, key=lambda key: self._alerts[key].at_ms)]
