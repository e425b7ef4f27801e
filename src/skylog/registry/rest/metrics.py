"""Counts requests, and exports what the registry counts, for Prometheus."""

from __future__ import annotations

from collections import Counter

from skylog.metric import Kind, Metric, Sample
from skylog.registry.registry import Registry
from skylog.registry.rest.forwarding import Forwarder


class RequestCounts:
    """Requests and their seconds, by method, route and status. Routes are few; subjects are not part of them."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: Counter[tuple[str, str, int]] = Counter()

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests[method, route, status] += 1
        self._seconds[method, route, status] += seconds  # type: ignore[assignment]

    def metrics(self) -> list[Metric]:
        return [
            _by_route("skylog_registry_requests_total", "Requests answered.", self._requests),
            _by_route("skylog_registry_request_seconds_total", "Time until they were answered.", self._seconds),
        ]


def _by_route(name: str, meaning: str, counts: Counter[tuple[str, str, int]]) -> Metric:
    samples = [
        Sample(value, {"method": method, "path": route, "status": str(status)})
        for (method, route, status), value in sorted(counts.items())
    ]
    return Metric(name, "counter", meaning, samples)


def registry_metrics(registry: Registry, forwarder: Forwarder) -> list[Metric]:
    counts = registry.state.counts()
    rows: list[tuple[str, Kind, str, float]] = [
        ("subjects", "gauge", "Subjects that are not deleted.", counts["subjects"]),
        ("versions", "gauge", "Versions of all subjects that are not deleted.", counts["versions"]),
        ("schemas", "gauge", "Different schemas that are not deleted.", counts["ids"]),
        ("is_writer", "gauge", "1 if this registry is elected to write.", registry.is_writer),
        ("is_current", "gauge", "1 if the topic was read to its end at the start.", registry.is_current),
        ("position", "gauge", "The next offset of the topic to read.", registry.position),
        ("elections_total", "counter", "Times that this registry was elected to write.", registry.elections),
        ("writes_total", "counter", "Changes that this registry has written.", registry.writes),
        ("failed_writes_total", "counter", "Changes that the cluster did not accept in time.", registry.failed_writes),
        ("forwarded_total", "counter", "Changes that another registry made for this one.", forwarder.forwarded),
        ("skipped_records_total", "counter", "Records of the topic that are not a registry's.", registry.state.skipped),
    ]
    return [Metric(f"skylog_registry_{name}", kind, text, [Sample(value, {})]) for name, kind, text, value in rows]
