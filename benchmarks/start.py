"""The time until a new broker acknowledges a message, and the cost of an idle broker."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import frames
from benchmarks.channel import Channel, create_topic, produce
from benchmarks.report import Check, Column, Options, Plot, Report, Table, median
from benchmarks.servers import broker

TOPIC = "bench"
START_BAR_S = 0.4
RSS_BAR_MB = 45
IDLE_SECONDS = 1.0


def run(options: Options) -> Report:
    batch = frames.record_batch(1)
    work_dir = Path(tempfile.mkdtemp(prefix="skylog-start-", dir=options.work_dir))
    try:
        fresh = [_first_start(work_dir, batch) for _ in range(options.rounds)]
        again = [_start(work_dir / "data", batch) for _ in range(options.rounds)]
    finally:
        shutil.rmtree(work_dir)
    return _report([_row("new data directory", fresh), _row("existing topic", again)])


def _first_start(work_dir: Path, batch: bytes) -> dict[str, float]:
    shutil.rmtree(work_dir / "data", ignore_errors=True)
    return _start(work_dir / "data", batch, create=True)


def _start(data_dir: Path, batch: bytes, *, create: bool = False) -> dict[str, float]:
    """Time one start, from the call that creates the process. The client is a bare socket, which costs nothing."""
    with broker(data_dir, core=None) as server:
        listening_s = time.perf_counter() - server.started_at
        if create:
            create_topic(server.address, TOPIC)
        with Channel(server.address) as channel:
            produce(channel, TOPIC, batch)
        produced_s = time.perf_counter() - server.started_at
        before = server.cpu_seconds()
        time.sleep(IDLE_SECONDS)
        return {
            "listening_s": listening_s,
            "produced_s": produced_s,
            "rss_mb": server.rss_bytes() / 1e6,
            "idle_cpu": (server.cpu_seconds() - before) / IDLE_SECONDS,
        }


def _row(name: str, taken: list[dict[str, float]]) -> dict[str, Any]:
    return {"what": name} | {key: median([each[key] for each in taken]) for key in taken[0]}


def _report(rows: list[dict[str, Any]]) -> Report:
    report = Report("start", "from nothing to the first acknowledged message; the idle broker")
    columns = (
        Column("what", "start with"),
        Column("listening_s", "listening s", "{:.2f}"),
        Column("produced_s", "first acknowledged produce s", "{:.2f}"),
        Column("rss_mb", "RSS idle MB", "{:.1f}"),
        Column("idle_cpu", "idle CPU, cores", "{:.3f}"),
    )
    report.tables.append(Table("", columns, rows))
    for row in rows:
        name = f"{row['what']}: first acknowledged produce, s"
        report.checks.append(Check(name, row["produced_s"], START_BAR_S, at_most=True))
    report.checks.append(Check("idle RSS, MB", max(row["rss_mb"] for row in rows), RSS_BAR_MB, at_most=True))
    labels = [row["what"] for row in rows]
    seconds = {"listening": [r["listening_s"] for r in rows], "first produce": [r["produced_s"] for r in rows]}
    report.plots.append(Plot("start", "seconds", labels, seconds, [START_BAR_S]))
    report.plots.append(Plot("idle memory", "MB", labels, {"RSS": [r["rss_mb"] for r in rows]}, [RSS_BAR_MB]))
    report.notes.append("Timed from the creation of the process; the new-directory row includes making the topic.")
    return report
