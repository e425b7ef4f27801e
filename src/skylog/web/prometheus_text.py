"""Renders metrics in Prometheus's text format.

Written by hand because prometheus-client's `generate_latest` takes several times as long, and a broker may have more
than 100,000 values.
"""

from __future__ import annotations

from collections.abc import Iterable

from skylog.metric import Metric, Sample


def render(metrics: Iterable[Metric]) -> str:
    lines: list[str] = []
    for metric in metrics:
        lines.append(f"# HELP {metric.name} {_escape(metric.help, quotes=False)}")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        lines += [_sample(metric.name, sample) for sample in metric.samples]
    return "\n".join(lines) + "\n"


def _sample(name: str, sample: Sample) -> str:
    labels = ",".join(f'{key}="{_escape(value)}"' for key, value in sample.labels.items())
    value = int(sample.value) if sample.value == sample.value // 1 and abs(sample.value) < 1e15 else sample.value
    return f"{name}{sample.suffix}{{{labels}}} {value}" if labels else f"{name}{sample.suffix} {value}"


def _escape(text: str, *, quotes: bool = True) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return escaped.replace('"', '\\"') if quotes else escaped
