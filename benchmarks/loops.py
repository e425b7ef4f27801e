"""The choice of the event loop: one bare server in six styles, two loops times three ways to use a socket.

Raw non-blocking sockets with `add_reader` against asyncio's `Protocol` and `BufferedProtocol`, on asyncio's own loop
and on uvloop. Only the raw style can send a file with `sendfile` without the loop's help; the others read and write.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import frames
from benchmarks.limit import TOPIC, Run, measure
from benchmarks.report import Column, Options, Plot, Report, Table, median
from benchmarks.servers import GENERATOR_CORE, bare_server, pin

LOOPS = ("uvloop", "asyncio")
STYLES = ("raw", "protocol", "buffered")
WORKLOADS = {"produce 1 × 200 B": 0, "fetch 64 KiB": 64 << 10, "fetch 1 MiB": 1 << 20}
CONNECTIONS = (1, 8)
PIECES = 200


def run(options: Options) -> Report:
    pin(os.getpid(), GENERATOR_CORE)
    work_dir = Path(tempfile.mkdtemp(prefix="skylog-loops-", dir=options.work_dir))
    options = replace(options, seconds=min(options.seconds, 0.35))
    rounds = min(options.rounds, 3)
    rows = []
    try:
        (work_dir / "pieces").write_bytes(os.urandom(1 << 20) * PIECES)
        for name, read_bytes in WORKLOADS.items():
            for connections in CONNECTIONS[1:] if options.quick else CONNECTIONS:
                rows += _rows(work_dir, name, read_bytes, connections, rounds, options)
    finally:
        shutil.rmtree(work_dir)
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    return _report(rows)


def _rows(
    work_dir: Path, name: str, read_bytes: int, connections: int, rounds: int, options: Options
) -> list[dict[str, Any]]:
    kinds = [(loop, style) for loop in LOOPS for style in STYLES]
    taken: dict[tuple[str, str], list[Run]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind in kinds:
            taken[kind].append(_one(work_dir, read_bytes, connections, kind, options))
    return [
        {
            "what": name,
            "connections": connections,
            "loop": loop,
            "style": style,
            "rate": median([each.requests_per_second for each in runs]),
            "cpu_us": median([each.cpu_us for each in runs]),
            "busy": median([each.busy for each in runs]),
        }
        for (loop, style), runs in taken.items()
    ]


def _one(work_dir: Path, read_bytes: int, connections: int, kind: tuple[str, str], options: Options) -> Run:
    loop, style = kind
    if read_bytes:
        asked = [frames.fetch_request(TOPIC, number) for number in range(PIECES)]
        path, error_at = work_dir / "pieces", frames.fetch_error_at(TOPIC)
    else:
        asked = [frames.produce_request(TOPIC, frames.record_batch(1))] * 64
        path, error_at = work_dir / "log", frames.produce_error_at(TOPIC)
        path.unlink(missing_ok=True)
    requests = [[frame.data for frame in asked]] * connections
    with bare_server(path, asked[0].patch_at, read_bytes=read_bytes, style=style, loop=loop) as server:
        return measure(server, requests, error_at, options, long_answers=bool(read_bytes), warm_up_seconds=0.1)


def _report(rows: list[dict[str, Any]]) -> Report:
    report = Report("loops", "the event loop and the way to use a socket")
    columns = (
        Column("what", "what"),
        Column("connections", "conn.", "{:d}"),
        Column("loop", "loop"),
        Column("style", "style"),
        Column("rate", "req/s", "{:,.0f}"),
        Column("cpu_us", "server µs CPU", "{:.1f}"),
        Column("busy", "generator busy", "{:.2f}"),
    )
    report.tables.append(Table("the bare server, no broker", columns, rows))
    groups = list(dict.fromkeys((row["what"], row["connections"]) for row in rows))
    series: dict[str, list[float]] = {}
    for row in rows:
        best = max(each["rate"] for each in rows if _group(each) == _group(row))
        series.setdefault(f"{row['loop']} {row['style']}", []).append(row["rate"] / best)
    labels = [f"{what}\n{connections} conn." for what, connections in groups]
    report.plots.append(Plot("requests/s, as a share of the best", "share", labels, dict(series)))
    report.notes.append("skylog uses raw sockets on uvloop, the style that the limit is measured with.")
    return report


def _group(row: dict[str, Any]) -> tuple[str, int]:
    return row["what"], row["connections"]
