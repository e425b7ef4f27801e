"""Metrics of this process and of the disk with its data, from the operating system. May block on the disk."""

from __future__ import annotations

import os
import resource
import shutil
import time
from pathlib import Path
from typing import Final

from skylog.metric import Kind, Metric, Sample

_PROC: Final = Path("/proc/self")  # Linux only; on other systems, metrics from here are omitted


def process_metrics(data_dir: Path) -> list[Metric]:
    """Return the metrics. Raises OSError if the data directory cannot be accessed."""
    disk = shutil.disk_usage(data_dir)
    values: list[tuple[str, Kind, str, float]] = [
        ("skylog_disk_free_bytes", "gauge", "Free bytes on the disk of the data directory.", disk.free),
        ("skylog_disk_total_bytes", "gauge", "Size of the disk of the data directory, in bytes.", disk.total),
        ("process_cpu_seconds_total", "counter", "CPU time of the broker, all threads.", time.process_time()),
        ("process_max_fds", "gauge", "Limit of open files.", resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    ]
    if _PROC.exists():
        resident_bytes = int((_PROC / "statm").read_text().split()[1]) * resource.getpagesize()
        open_fds = len(os.listdir(_PROC / "fd"))
        values += [
            ("process_resident_memory_bytes", "gauge", "Resident memory of the broker.", resident_bytes),
            ("process_open_fds", "gauge", "Open files and sockets.", open_fds),
        ]
    return [Metric(name, kind, text, [Sample(value, {})]) for name, kind, text, value in values]
