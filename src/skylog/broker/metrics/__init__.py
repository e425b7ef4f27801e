"""What a broker counts, and how it is told: as `list[Metric]`, and as a judgement of its health."""

from skylog.broker.metrics.collect import collect, stream
from skylog.broker.metrics.health import Health, HealthReport
from skylog.broker.metrics.topic import METRICS_TOPIC, MetricsTopic

__all__ = ["METRICS_TOPIC", "Health", "HealthReport", "MetricsTopic", "collect", "stream"]
