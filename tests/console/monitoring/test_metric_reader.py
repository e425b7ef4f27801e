from __future__ import annotations

import pytest

from skylog.console.monitoring.metric_reader import MetricReader
from skylog.metric import Metric, Sample, from_document, to_document


def histogram(*counts: int) -> MetricReader:
    """Of the bounds 1, 2, 5 and infinity, with counts that add up, as Prometheus has them."""
    bounds = ("1", "2", "5", "+Inf")
    samples = [
        Sample(count, {"request": "Fetch", "le": le}, "_bucket") for count, le in zip(counts, bounds, strict=True)
    ]
    return MetricReader([Metric("time_ms", "histogram", "", samples)])


def test_values_are_summed_by_label() -> None:
    samples = [
        Sample(value, {"topic": topic, "partition": str(index)})
        for index, (topic, value) in enumerate([("a", 1), ("b", 5), ("a", 2)])
    ]
    reader = MetricReader([Metric("size", "gauge", "", samples)])
    assert reader.by("size", "topic") == {"a": 3, "b": 5}
    assert reader.total("size") == 8
    assert reader.total("size", topic="b") == 5
    assert reader.total("size", topic="c") is None
    assert reader.total("other") is None
    assert reader.by("size", "other") == {}


@pytest.mark.parametrize(("quantile", "bound"), [(0.5, 1), (0.9, 2), (0.95, 5), (0.999, 5)])
def test_a_quantile_is_the_bound_of_its_bucket(quantile: float, bound: float) -> None:
    assert histogram(50, 90, 99, 100).quantile("time_ms", quantile, request="Fetch") == bound


def test_a_quantile_is_of_what_came_since() -> None:
    before, now = histogram(100, 100, 100, 100), histogram(100, 100, 110, 110)
    assert now.quantile("time_ms", 0.5) == 1
    assert now.quantile("time_ms", 0.5, before) == 5
    assert before.quantile("time_ms", 0.5, before) is None
    assert before.quantile("time_ms", 0.5, request="Produce") is None


def test_metrics_come_back_from_json_as_they_were() -> None:
    metrics = [Metric("a_total", "counter", "Some.", [Sample(1.5, {"x": "y"}), Sample(2, {}, "_sum")])]
    assert from_document(to_document(metrics)) == metrics
