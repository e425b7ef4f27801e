"""How costs grow with the data: appends and random reads in logs of 0.1 to 10 GB, opening, memory per partition.

The first part drives `skylog.storage` directly, without sockets, in one process with one log of each size. All logs
are on disk before the measurement starts. Then they alternate, chunk by chunk, so that the comparison holds even on a
machine with other load.

Random reads are measured in three ways, because a large log also does not fit into caches:
* `window`: offsets within the last 64 MB, which are in the page cache at any size. Shows how the length of the log
  alone changes the cost of finding a position, and of finding and copying 64 KiB.
* `whole`: offsets anywhere, with a warm page cache (omitted if the memory cannot hold the log).
* `cold`: offsets anywhere after the files are dropped from the page cache. Measures the disk, and has no bar.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import frames
from benchmarks.channel import create_topic
from benchmarks.report import Check, Column, Options, Plot, Report, Table, median
from benchmarks.servers import broker
from skylog.clock import SystemClock
from skylog.model import TopicPartition
from skylog.storage import Log, LogConfig, LogDir

GB = 10**9
WINDOW_BYTES = 64 << 20
READ_BYTES = 64 << 10
MESSAGES_PER_BATCH = 50
MESSAGE_BYTES = 210
CHUNKS = 101
ALLOWED = 1.3


def run(options: Options) -> Report:
    report = Report("growth", "appends and reads as the log grows; opening; memory per partition")
    work_dir = Path(tempfile.mkdtemp(prefix="skylog-growth-", dir=options.work_dir))
    try:
        _log_growth(report, work_dir / "log", options)
        _opening(report, work_dir / "open", options)
        _memory(report, work_dir / "broker", options)
    finally:
        shutil.rmtree(work_dir)
    return report


# -- logs of several sizes


def _log_growth(report: Report, path: Path, options: Options) -> None:
    sizes_gb = [0.1, 1.0] if options.quick else [0.1, 1.0, 10.0]
    free_bytes = shutil.disk_usage(options.work_dir).free
    while sum(sizes_gb) * GB * 1.2 > free_bytes:
        report.notes.append(f"{sizes_gb.pop():g} GB left out: {free_bytes / GB:.0f} GB of disk are free.")
    log_dir = LogDir(path, SystemClock())
    logs = [log_dir.open_log(TopicPartition(f"growth-{size:g}", 0), LogConfig()) for size in sizes_gb]
    for log, size_gb in zip(logs, sizes_gb, strict=True):
        _fill(log, int(size_gb * GB))
    figures = _measure_logs(logs, sizes_gb)
    rows = [
        {"size_gb": size, "segments": len(log.segments)} | {key: values[number] for key, values in figures.items()}
        for number, (size, log) in enumerate(zip(sizes_gb, logs, strict=True))
    ]
    log_dir.close()
    reopened = LogDir(path, SystemClock())
    started = time.perf_counter()
    reopened.open_log(logs[-1].name, LogConfig())
    report.notes.append(f"Clean open of the {sizes_gb[-1]:g} GB log: {(time.perf_counter() - started) * 1e3:.1f} ms.")
    reopened.close()
    shutil.rmtree(path)
    _report_log(report, rows)


def _fill(log: Log, size_bytes: int) -> None:
    """Append the same batches to every log, because their size determines how much a read scans."""
    batch = memoryview(bytearray(frames.record_batch(MESSAGES_PER_BATCH)))
    for _ in range(size_bytes // len(batch)):
        log.append_as_leader(batch, 0, 0)
    _flush(log)


def _flush(log: Log) -> None:
    task = log.begin_flush()
    task.run()
    log.end_flush(task)


def _measure_logs(logs: list[Log], sizes_gb: list[float]) -> dict[str, list[float]]:
    """Return one list of figures per measurement, in the order of `logs`. Reads first: appends leave dirty pages."""
    ends = [log.log_end_offset for log in logs]
    window = [(end - WINDOW_BYTES // MESSAGE_BYTES, end) for end in ends]
    whole = [(0, end) for end in ends]
    figures = {
        "find_window_us": _in_turns(logs, lambda log, n: _find(log, window[n], 300)),
        "read_window_us": _in_turns(logs, lambda log, n: _find(log, window[n], 100, copy=True)),
    }
    if sum(sizes_gb) * GB < 0.7 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
        for log in logs:
            _touch(log)
        figures["find_whole_us"] = _in_turns(logs, lambda log, n: _find(log, whole[n], 300))
        figures["read_whole_us"] = _in_turns(logs, lambda log, n: _find(log, whole[n], 100, copy=True))
    for log in logs:
        _forget(log)
    figures["read_cold_us"] = _in_turns(logs, lambda log, n: _find(log, whole[n], 20, copy=True))
    for key, messages, count in (("append_small_us", 1, 500), ("append_us", MESSAGES_PER_BATCH, 100)):
        batch = memoryview(bytearray(frames.record_batch(messages)))
        figures[key] = _in_turns(logs, partial(_append_in_turn, batch, count))
    return figures


def _in_turns(logs: list[Log], measure: Callable[[Log, int], float]) -> list[float]:
    """Run a chunk of calls on each log alternately, so that other load on the machine affects all alike.

    The figure is the median over the chunks, so that a single roll or a burst of other load does not count.
    """
    taken = [[measure(log, number) for number, log in enumerate(logs)] for _ in range(CHUNKS)]
    return [median([chunk[number] for chunk in taken]) * 1e6 for number in range(len(logs))]


def _append_in_turn(batch: memoryview, count: int, log: Log, _: int) -> float:
    return _append(log, batch, count)


def _append(log: Log, batch: memoryview, count: int) -> float:
    started = time.perf_counter()
    for _ in range(count):
        log.append_as_leader(batch, 0, 0)
    return (time.perf_counter() - started) / count


def _find(log: Log, offsets: tuple[int, int], count: int, *, copy: bool = False) -> float:
    chosen = [random.randrange(*offsets) for _ in range(count)]
    started = time.perf_counter()
    for offset in chosen:
        found = log.read(offset, READ_BYTES)
        if copy and found is not None:
            os.pread(found.file.fileno(), min(found.length, READ_BYTES), found.position)
    return (time.perf_counter() - started) / count


def _files(log: Log) -> Iterable[Path]:
    return sorted(log.directory.iterdir())


def _touch(log: Log) -> None:
    """Read the log into the page cache."""
    buffer = bytearray(4 << 20)
    for path in _files(log):
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def _forget(log: Log) -> None:
    """Make the kernel drop the log from the page cache. Possible because everything is on disk."""
    for path in _files(log):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


FIGURES = {
    "append_small_us": "append 1 message",
    "append_us": f"append {MESSAGES_PER_BATCH} messages",
    "find_window_us": "find, window",
    "read_window_us": "find + 64 KiB, window",
    "find_whole_us": "find, whole",
    "read_whole_us": "find + 64 KiB, whole",
}


def _report_log(report: Report, rows: list[dict[str, Any]]) -> None:
    columns = [Column("size_gb", "GB", "{:g}"), Column("segments", "segments", "{:d}")]
    columns += [Column(key, f"{name} µs", "{:.2f}") for key, name in FIGURES.items()]
    columns.append(Column("read_cold_us", "find + 64 KiB, cold µs", "{:.0f}"))
    report.tables.append(Table("logs of several sizes, driven directly", columns, rows))
    measured = {key: [row[key] for row in rows if key in row] for key in FIGURES}
    for key, values in measured.items():
        if len(values) > 1 and not key.startswith("find"):
            spread = max(values) / min(values)
            report.checks.append(Check(f"{FIGURES[key]}: slowest size / fastest", spread, ALLOWED, at_most=True))
    report.notes.append("Finding alone is a part of every read and has no bar; over a large log it misses CPU caches.")
    labels = [f"{row['size_gb']:g} GB" for row in rows]
    complete = {FIGURES[key]: values for key, values in measured.items() if len(values) == len(rows)}
    report.plots.append(Plot("logs of several sizes", "µs per call", labels, complete))


# -- many partitions


def _opening(report: Report, path: Path, options: Options) -> None:
    rows = []
    batch = bytearray(frames.record_batch(MESSAGES_PER_BATCH))
    for partitions in (1, 100) if options.quick else (1, 100, 1000):
        names = [TopicPartition("open", number) for number in range(partitions)]
        log_dir = LogDir(path, SystemClock())
        for name in names:
            log_dir.open_log(name, LogConfig()).append_as_leader(memoryview(batch), 0, 0)
        log_dir.close()
        taken = []
        for _ in range(2):
            started = time.perf_counter()
            log_dir = LogDir(path, SystemClock())
            for name in names:
                log_dir.open_log(name, LogConfig())
            taken.append(time.perf_counter() - started)
            log_dir.close()
        rows.append({"partitions": partitions, "ms": median(taken) * 1e3, "us": median(taken) / partitions * 1e6})
        shutil.rmtree(path)
    columns = (
        Column("partitions", "partitions", "{:d}"),
        Column("ms", "ms", "{:.1f}"),
        Column("us", "µs per partition", "{:.0f}"),
    )
    report.tables.append(Table("opening after a clean stop, driven directly", columns, rows))


def _memory(report: Report, path: Path, options: Options) -> None:
    """Measure the broker's memory with empty partitions, and the time of a restart with them."""
    rows = []
    for partitions in (0, 100) if options.quick else (0, 100, 1000):
        with broker(path) as server:
            if partitions:
                create_topic(server.address, "memory", partitions)
            fresh_bytes = server.rss_bytes()
        with broker(path) as server:
            listening_s = time.perf_counter() - server.started_at
            again_bytes = server.rss_bytes()
        rows.append(
            {
                "partitions": partitions,
                "created_mb": fresh_bytes / 1e6,
                "restarted_mb": again_bytes / 1e6,
                "listening_s": listening_s,
            }
        )
        shutil.rmtree(path)
    columns = (
        Column("partitions", "partitions", "{:d}"),
        Column("created_mb", "RSS after creation MB", "{:.1f}"),
        Column("restarted_mb", "RSS after restart MB", "{:.1f}"),
        Column("listening_s", "restart to listening s", "{:.2f}"),
    )
    report.tables.append(Table("the broker's memory", columns, rows))
    series = {"created": [row["created_mb"] for row in rows], "restarted": [row["restarted_mb"] for row in rows]}
    report.plots.append(Plot("broker RSS", "MB", [f"{row['partitions']} partitions" for row in rows], series))
