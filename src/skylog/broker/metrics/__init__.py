"""The broker's metrics and its health check."""

from skylog.broker.metrics.collect import collect, stream
from skylog.broker.metrics.health import Health, HealthReport
from skylog.broker.metrics.topic import METRICS_TOPIC, MetricsTopic

__all__ = ["METRICS_TOPIC", "Health", "HealthReport", "MetricsTopic", "collect", "stream"]
