"""Exports the counts of all event logs of this process as Prometheus metrics, collected on each scrape.

Importing `skylog.events` registers them with the default registry. Use `EventCollector` for other registries.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from skylog.events.event_log import EventLog

_LABELS = ("application", "topic")
watched: weakref.WeakSet[EventLog] = weakref.WeakSet()
"""All event logs of this process."""


class EventCollector(Collector):
    """Fired = collected or queued (both are buffered) + delivered + dropped."""

    def collect(self) -> Iterator[Metric]:
        fired = CounterMetricFamily("skylog_events_fired", "Events that the application fired.", labels=_LABELS)
        delivered = CounterMetricFamily("skylog_events_delivered", "Events that a broker has stored.", labels=_LABELS)
        dropped = CounterMetricFamily("skylog_events_dropped", "Events that were lost.", labels=(*_LABELS, "reason"))
        buffered = GaugeMetricFamily("skylog_events_buffered", "Events that wait to be delivered.", labels=_LABELS)
        for log in list(watched):
            stats = log.stats()
            labels = (log.application, log.topic)
            fired.add_metric(labels, stats.fired)
            delivered.add_metric(labels, stats.delivered)
            for reason, count in stats.dropped.items():
                dropped.add_metric((*labels, reason), count)
            buffered.add_metric(labels, stats.buffered)
        yield from (fired, delivered, dropped, buffered)


REGISTRY.register(EventCollector())
