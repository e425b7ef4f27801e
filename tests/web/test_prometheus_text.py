from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from skylog.metric import Metric, Sample
from skylog.web.prometheus_text import render


def test_prometheus_reads_what_is_rendered() -> None:
    hostile = 'a"b\\c\nd'
    text = render(
        [
            Metric(
                "kafka_x_total", "counter", 'Of "all"\nkinds \\.', [Sample(3, {"topic": hostile}), Sample(0.25, {})]
            ),
            Metric("big", "gauge", "Large.", [Sample(2.0**60, {}), Sample(float("inf"), {"of": "inf"})]),
        ]
    )
    found = {
        sample.labels.get("topic", sample.labels.get("of", "")) + sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found == {hostile + "kafka_x_total": 3, "kafka_x_total": 0.25, "big": 2.0**60, "infbig": float("inf")}
