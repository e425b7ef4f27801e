"""Values out of a list of metrics."""

from __future__ import annotations

from collections.abc import Iterable

from skylog.broker.metrics import collect
from skylog.metric import Metric
from tests.broker.process import BrokerThread


def collected(thread: BrokerThread) -> list[Metric]:
    metrics: list[Metric] = thread.run(collect(thread.broker))
    return metrics


def value(metrics: Iterable[Metric], name: str, suffix: str = "", **labels: str) -> float:
    """The one value with these labels, among others."""
    (metric,) = [metric for metric in metrics if metric.name == name]
    (found,) = [
        sample.value
        for sample in metric.samples
        if sample.suffix == suffix and labels.items() <= dict(sample.labels).items()
    ]
    return found
