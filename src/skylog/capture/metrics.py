"""The metrics of a capture for Prometheus, over HTTP."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from skylog.capture.capture import CaptureStatus

MAX_LABEL: Final = 200  # characters of an error


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
        self._is_running = Gauge(
            "skylog_capture_running", "1 while it captures, 0 after a failure.", labels, registry=registry
        ).labels(prefix)
        self._last_error = Gauge(
            "skylog_capture_last_error", "1, with the text of the last failure.", ("prefix", "error"), registry=registry
        )
        self._prefix = prefix
        self._known = CaptureStatus()
        start_http_server(port, registry=registry)

    def show(self, status: CaptureStatus) -> None:
        self._rows.inc(max(status.rows - self._known.rows, 0))
        self._failures.inc(max(status.failures - self._known.failures, 0))
        if status.last_error != self._known.last_error and status.last_error is not None:
            self._last_error.clear()
            self._last_error.labels(self._prefix, status.last_error[:MAX_LABEL]).set(1)
        self._known = status
        self._is_running.set(status.is_running)
        self._lag_bytes.set(status.lag_bytes)
        self._lag_s.set(status.lag_s)
        self._slot_bytes.set(status.slot_bytes)
