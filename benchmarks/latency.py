"""The end-to-end latency of messages, and the cost of a request.

End to end: one producer sends 1,000 messages a second (linger 0) and one consumer receives them by long polling, each
in its own process. The figure is the age of a message when the application receives it. Then requests with one message
each, as fast as possible, with the broker's CPU time per request.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import frames, load
from benchmarks.channel import create_topic
from benchmarks.clients import Client
from benchmarks.report import Column, Options, Plot, Report, Table
from benchmarks.servers import GENERATOR_CORE, Server, broker, pin

RATE = 1000
IGNORED = 300
"""The number of first messages to ignore: they include connecting and code that runs for the first time."""
LOADS = ((1, 1), (1, 5), (8, 5), (64, 1))


def run(options: Options) -> Report:
    work_dir = Path(tempfile.mkdtemp(prefix="skylog-latency-", dir=options.work_dir))
    try:
        with broker(work_dir / "paced", core=None) as server:
            ages = [_end_to_end(server, acks, options) for acks in ("1", "all")]
        with broker(work_dir / "loaded") as server:
            requests = [_requests(server, acks, *how, options) for acks in (1, -1) for how in LOADS]
    finally:
        shutil.rmtree(work_dir)
    return _report(ages, requests)


def _end_to_end(server: Server, acks: str, options: Options) -> dict[str, Any]:
    messages = IGNORED + RATE * (2 if options.quick else 8)
    topic = f"acks-{acks}"
    create_topic(server.address, topic)
    listener = Client("listen", server.bootstrap, topic=topic, messages=messages)
    pacer = Client("pace", server.bootstrap, topic=topic, messages=messages, acks=acks, linger_ms=0, rate=RATE)
    listener.begin()
    before = server.cpu_seconds()
    pacer.begin()
    pacer.result()
    ages = listener.result()["ages"][IGNORED:]
    cpu_us = (server.cpu_seconds() - before) / messages * 1e6
    points = statistics.quantiles(ages, n=1000)
    named = {"p50_ms": points[499], "p90_ms": points[899], "p99_ms": points[989], "p999_ms": points[998]}
    return {"acks": acks, "cpu_us": cpu_us} | {name: value * 1e3 for name, value in named.items()}


def _requests(server: Server, acks: int, connections: int, in_flight: int, options: Options) -> dict[str, Any]:
    topic = f"load-{connections}-{in_flight}-{acks}"
    create_topic(server.address, topic)
    frame = frames.produce_request(topic, frames.record_batch(1), acks=acks)
    pin(os.getpid(), GENERATOR_CORE)
    before = server.cpu_seconds()
    taken = load.run(
        server.address,
        [[frame.data] * 64] * connections,
        in_flight=in_flight,
        error_at=frames.produce_error_at(topic),
        seconds=options.seconds * 2,
    )
    cpu_us = (server.cpu_seconds() - before) / taken.total_requests * 1e6
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    rate = taken.requests_per_second
    return {
        "acks": "all" if acks < 0 else str(acks),
        "connections": connections,
        "in_flight": in_flight,
        "rate": rate,
        "mean_ms": connections * in_flight / rate * 1e3,
        "cpu_us": cpu_us,
        "busy": taken.busy,
    }


def _report(ages: list[dict[str, Any]], requests: list[dict[str, Any]]) -> Report:
    report = Report("latency", "a message's way from producer to consumer; the cost of a request")
    points = ("p50_ms", "p90_ms", "p99_ms", "p999_ms")
    columns = [Column("acks", "acks"), *(Column(key, key.replace("_", " "), "{:.2f}") for key in points)]
    columns.append(Column("cpu_us", "broker µs CPU per message", "{:.0f}"))
    report.tables.append(Table(f"end to end at {RATE:,} messages/s, linger 0", columns, ages))
    columns = [
        Column("acks", "acks"),
        Column("connections", "connections", "{:d}"),
        Column("in_flight", "in flight each", "{:d}"),
        Column("rate", "requests/s", "{:,.0f}"),
        Column("mean_ms", "mean time ms", "{:.2f}"),
        Column("cpu_us", "broker µs CPU per request", "{:.1f}"),
        Column("busy", "generator busy", "{:.2f}"),
    ]
    report.tables.append(Table("produce requests of one 200-byte message, as fast as they go", columns, requests))
    series = {key.removesuffix("_ms"): [row[key] for row in ages] for key in points[:3]}
    report.plots.append(Plot("end to end", "ms", [f"acks={row['acks']}" for row in ages], series))
    labels = [f"{row['connections']} × {row['in_flight']}\nacks={row['acks']}" for row in requests]
    report.plots.append(
        Plot("one message per request", "requests/s", labels, {"skylog": [r["rate"] for r in requests]})
    )
    report.notes.append("An acks=all produce of one broker waits for nobody else; the difference is its bookkeeping.")
    return report
