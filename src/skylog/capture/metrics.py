"""The metrics of a capture for Prometheus, over HTTP."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from skylog.capture.capture import CaptureStatus


class CaptureMetrics:
    """Metrics that a thread serves on a port of every address, until the process ends."""

    def __init__(self, prefix: str, port: int) -> None:
        registry = CollectorRegistry()
        labels = ("prefix",)
        self._rows = Counter("skylog_capture_rows", "Rows that were read.", labels, registry=registry).labels(prefix)
        self._failures = Counter(
            "skylog_capture_failures", "Failures after which the capture began again.", labels, registry=registry
        ).labels(prefix)
        self._lag_bytes, self._lag_s, self._slot_bytes = (
            Gauge(name, text, labels, registry=registry).labels(prefix)
            for name, text in (
                ("skylog_capture_lag_bytes", "WAL that is not in the topics yet."),
                ("skylog_capture_lag_seconds", "Age of the transaction that is being captured."),
                ("skylog_capture_slot_bytes", "WAL that the database keeps for the capture."),
            )
        )
        self._known = CaptureStatus()
        start_http_server(port, registry=registry)

    def show(self, status: CaptureStatus) -> None:
        self._rows.inc(max(status.rows - self._known.rows, 0))
        self._failures.inc(max(status.failures - self._known.failures, 0))
        self._known = status
        self._lag_bytes.set(status.lag_bytes)
        self._lag_s.set(status.lag_s)
        self._slot_bytes.set(status.slot_bytes)
