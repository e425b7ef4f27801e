"""Looks up a broker's metrics by name: values, sums, and quantiles since an earlier snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf

from skylog.metric import Metric, Sample


class MetricReader:
    """The metrics of one moment."""

    def __init__(self, metrics: Iterable[Metric] = ()) -> None:
        self.metrics = {metric.name: metric for metric in metrics}

    def total(self, name: str, **labels: str) -> float | None:
        """Return the sum of all values with these labels; None if there are none."""
        values = [sample.value for sample in self._samples(name, labels) if not sample.suffix]
        return sum(values) if values else None

    def by(self, name: str, label: str, **labels: str) -> dict[str, float]:
        """Return sums by the values of a label."""
        sums: dict[str, float] = {}
        for sample in self._samples(name, labels):
            if not sample.suffix and label in sample.labels:
                key = sample.labels[label]
                sums[key] = sums.get(key, 0.0) + sample.value
        return sums

    def labels(self, name: str, label: str) -> list[str]:
        metric = self.metrics.get(name)
        return sorted({each.labels[label] for each in metric.samples if label in each.labels}) if metric else []

    def quantile(self, name: str, quantile: float, before: MetricReader | None = None, **labels: str) -> float | None:
        """Return the upper bound of the histogram bucket that holds the quantile of all values since `before`."""
        counts = self._buckets(name, labels)
        earlier = before._buckets(name, labels) if before else {}
        grown = sorted((bound, count - earlier.get(bound, 0.0)) for bound, count in counts.items())
        if not grown or grown[-1][1] <= 0:
            return None
        rank = grown[-1][1] * quantile
        bound = next(bound for bound, count in grown if count >= rank)
        return grown[-2][0] if bound == inf and len(grown) > 1 else bound

    def _buckets(self, name: str, labels: Mapping[str, str]) -> dict[float, float]:
        buckets: dict[float, float] = {}
        for sample in self._samples(name, labels):
            if sample.suffix == "_bucket":
                bound = float(sample.labels["le"])
                buckets[bound] = buckets.get(bound, 0.0) + sample.value
        return buckets

    def _samples(self, name: str, labels: Mapping[str, str]) -> Iterator[Sample]:
        metric = self.metrics.get(name)
        for sample in metric.samples if metric else ():
            if all(sample.labels.get(key) == value for key, value in labels.items()):
                yield sample
