"""A metric and its samples: what the broker sends to the console and publishes to the log.

Names and labels follow Prometheus. A metric that Kafka has too carries the name that Kafka's exporter gives it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One value. `suffix` is the part that a histogram appends to its name: `_bucket`, `_sum` or `_count`."""

    value: float
    labels: Mapping[str, str]
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Metric:
    """All samples of one name at one point in time. The name of a counter ends in `_total`."""

    name: str
    kind: Kind
    help: str
    samples: Sequence[Sample]


def to_document(metrics: Iterable[Metric]) -> list[dict[str, Any]]:
    """Convert metrics to JSON types."""
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
