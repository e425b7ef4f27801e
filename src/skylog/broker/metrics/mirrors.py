"""Metrics of mirrors: what this broker copies, as the leader of mirrored partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skylog.broker.time_slice import TimeSlice
from skylog.metric import Metric, Sample

if TYPE_CHECKING:
    from skylog.broker.broker import Broker


async def mirror_metrics(broker: Broker) -> list[Metric]:
    """Return the metrics of the mirrors that run here. A broker without any has no values."""
    now_s = broker.clock.monotonic()
    lags, behind, statuses, errors, skipped = [], [], [], [], []
    time_slice = TimeSlice()
    for copier in broker.mirrors.copiers():
        for name, mirrored in list(copier.partitions.items()):
            await time_slice.yield_if_over()
            progress = mirrored.progress
            labels = {"mirror": copier.mirror.name, "topic": name.topic, "partition": str(name.partition)}
            lags.append(Sample(progress.lag, labels))
            behind.append(Sample(round(progress.lag_s(now_s), 3), labels))
            statuses.append(Sample(1, {**labels, "status": progress.status.value}))
            errors.append(Sample(progress.errors, labels))
            skipped.append(Sample(progress.skipped, labels))
    copied = [Sample(each.bytes_in, {"mirror": each.mirror.name}) for each in broker.mirrors.copiers()]
    return [
        Metric("skylog_mirror_lag", "gauge", "Offsets of the source that are not mirrored yet.", lags),
        Metric("skylog_mirror_lag_seconds", "gauge", "How long ago a partition had all of the source.", behind),
        Metric("skylog_mirror_status", "gauge", "1 for the status of a mirrored partition.", statuses),
        Metric("skylog_mirror_errors_total", "counter", "Failures to mirror a partition.", errors),
        Metric(
            "skylog_mirror_skipped_total",
            "counter",
            "Offsets that the source deleted before they were copied.",
            skipped,
        ),
        Metric("skylog_mirror_bytes_total", "counter", "Bytes of batches copied from the source.", copied),
    ]
