"""The counts of all event logs of this process as Prometheus metrics, read when they are scraped.

The default registry has them as soon as `skylog.events` is imported; `EventCollector` is for other registries.
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
"""The logs of this process, for as long as they live."""


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
