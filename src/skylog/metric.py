"""A metric as it is told: what a broker hands to whoever shows it, and what is published to the log.

Names and labels are those of Prometheus; where Kafka has a metric it is called as Kafka's is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One value. `suffix` is what a histogram adds to the metric's name: `_bucket`, `_sum` or `_count`."""

    value: float
    labels: Mapping[str, str]
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Metric:
    """All values of one name at one moment. A counter's name ends in `_total`."""

    name: str
    kind: Kind
    help: str
    samples: Sequence[Sample]


def to_document(metrics: Iterable[Metric]) -> list[dict[str, Any]]:
    """In JSON's types."""
    return [
        {
            "name": metric.name,
            "kind": metric.kind,
            "help": metric.help,
            "samples": [
                {"value": each.value, "labels": dict(each.labels)} | ({"suffix": each.suffix} if each.suffix else {})
                for each in metric.samples
            ],
        }
        for metric in metrics
    ]


def from_document(document: Iterable[Mapping[str, Any]]) -> list[Metric]:
    return [
        Metric(
            row["name"],
            row["kind"],
            row["help"],
            [Sample(each["value"], each["labels"], each.get("suffix", "")) for each in row["samples"]],
        )
        for row in document
    ]
