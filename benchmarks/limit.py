"""The broker against the limit: the same frames, the same bytes, the same event loop, driven by the same generator.

The limit is `bare_server`: it reads frames, writes their records to a file with one `os.write` each and acknowledges,
or sends the same number of bytes back by the faster method (`pread` and one `send` below 32 KiB, `sendfile` above).
The ratio shows the cost of what the broker adds: checks, offsets, indexes, decoding.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import frames, load
from benchmarks.channel import create_topic, read_log
from benchmarks.report import Check, Column, Options, Plot, Report, Table, median
from benchmarks.servers import GENERATOR_CORE, Server, bare_server, broker, pin
from skylog.broker.producer_runs import compiled

TOPIC = "bench"
CONNECTIONS = (1, 8)
IN_FLIGHT = 5
MAX_BYTES_PER_RUN = 1 << 30
FETCH_BYTES = 1 << 20
ONE_BATCH_OFFSETS = 2000
SMALL_REQUESTS_BAR = 0.45 if compiled is None else 0.9
"""For one message per request on several connections; SKYLOG_PURE=1 measures the lower one."""


@dataclass(frozen=True)
class Size:
    """One kind of batch, with the share of the limit that its produce requests must reach."""

    label: str
    batch: bytes
    messages: int
    bar: float


@dataclass(frozen=True)
class Run:
    """One run against one server."""

    requests_per_second: float
    bytes_per_second: float
    cpu_us: float
    busy: float


def sizes() -> list[Size]:
    of_counts = [(1, 0.5), (50, 0.7), (1000, 0.7)]
    found = [Size(f"{count} × 200 B", frames.record_batch(count), count, bar) for count, bar in of_counts]
    batch, count = frames.batch_of_size(1_000_000)
    return [*found, Size("1 MB", batch, count, 0.7)]


def run(options: Options) -> Report:
    pin(os.getpid(), GENERATOR_CORE)
    work_dir = Path(tempfile.mkdtemp(prefix="skylog-limit-", dir=options.work_dir))
    rows: list[dict[str, Any]] = []
    try:
        for size in sizes():
            rows += [_produce_row(work_dir, size, connections, options) for connections in CONNECTIONS]
        for size in sizes():
            rows += _fetch_rows(work_dir, size, options)
    finally:
        shutil.rmtree(work_dir)
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    return _report(rows)


def measure(server: Server, requests: list[list[bytes]], error_at: int, options: Options, **how: Any) -> Run:
    """Drive `server` for a while. The CPU time is the server's, per response, including the warm-up."""
    before = server.cpu_seconds()
    result = load.run(server.address, requests, in_flight=IN_FLIGHT, error_at=error_at, seconds=options.seconds, **how)
    cpu_us = (server.cpu_seconds() - before) / result.total_requests * 1e6
    rate = result.requests_per_second
    return Run(rate, result.answer_bytes / result.seconds, cpu_us, result.busy)


def _produce_row(work_dir: Path, size: Size, connections: int, options: Options) -> dict[str, Any]:
    """Measure produces, with new processes and files for every run: neither side uses the other's page cache."""
    frame = frames.produce_request(TOPIC, size.batch)
    requests = [[frame.data] * 64] * connections
    max_requests = MAX_BYTES_PER_RUN // len(frame.data)

    def drive(server: Server) -> Run:
        error_at = frames.produce_error_at(TOPIC)
        return measure(server, requests, error_at, options, max_requests=max_requests, warm_up_seconds=0.2)

    def limit() -> Run:
        path = work_dir / "limit.log"
        with bare_server(path, frame.patch_at) as server:
            taken = drive(server)
        path.unlink()
        return taken

    def skylog() -> Run:
        data_dir = work_dir / "data"
        with broker(data_dir) as server:
            create_topic(server.address, TOPIC)
            taken = drive(server)
        shutil.rmtree(data_dir)
        return taken

    row = _compare("produce", size, connections, limit, skylog, options.rounds)
    row["bar"] = SMALL_REQUESTS_BAR if size.messages == 1 and connections > 1 else size.bar
    row["limit_mb_s"], row["broker_mb_s"] = (row[key] * len(size.batch) / 1e6 for key in ("limit", "broker"))
    return row


def _fetch_rows(work_dir: Path, size: Size, options: Options) -> list[dict[str, Any]]:
    """Fill a log with batches of this size, then read it like a consumer, and batch by batch."""
    log_bytes = (8 if options.quick else 32) << 20
    data_dir = work_dir / "data"
    rows = []
    with broker(data_dir) as server:
        create_topic(server.address, TOPIC)
        _fill(server, size, log_bytes)
        rows += _read_rows(server, work_dir, size, "fetch", FETCH_BYTES, 0.8, options)
        if size.messages <= 50:
            rows += _read_rows(server, work_dir, size, "fetch one batch", len(size.batch), None, options)
    shutil.rmtree(data_dir)
    return rows


def _fill(server: Server, size: Size, log_bytes: int) -> None:
    frame = frames.produce_request(TOPIC, size.batch)
    load.run(
        server.address,
        [[frame.data] * 64] * 4,
        in_flight=IN_FLIGHT,
        error_at=frames.produce_error_at(TOPIC),
        seconds=120,
        warm_up_seconds=0,
        max_requests=log_bytes // len(size.batch),
    )


def _read_rows(
    server: Server, work_dir: Path, size: Size, name: str, max_bytes: int, bar: float | None, options: Options
) -> list[dict[str, Any]]:
    """Measure reads. One pass through the log collects the offsets; the limit serves the exact bytes of that pass."""
    answers = read_log(server.address, TOPIC, max_bytes, ONE_BATCH_OFFSETS)
    pieces = work_dir / "pieces"
    pieces.write_bytes(b"".join(answers.records))
    asked = [frames.fetch_request(TOPIC, offset, partition_max_bytes=max_bytes) for offset in answers.offsets]
    error_at = frames.fetch_error_at(TOPIC)
    rows = []
    with bare_server(pieces, asked[0].patch_at, read_bytes=answers.records_bytes) as bare:
        numbered = [frames.fetch_request(TOPIC, number, partition_max_bytes=max_bytes) for number in range(len(asked))]
        for connections in CONNECTIONS:
            of_limit, of_broker = (_staggered([f.data for f in each], connections) for each in (numbered, asked))

            def limit(requests: list[list[bytes]] = of_limit) -> Run:
                return measure(bare, requests, error_at, options, long_answers=True, warm_up_seconds=0.1)

            def skylog(requests: list[list[bytes]] = of_broker) -> Run:
                return measure(server, requests, error_at, options, long_answers=True, warm_up_seconds=0.1)

            row = _compare(name, size, connections, limit, skylog, options.rounds)
            row["answer_bytes"] = answers.records_bytes
            row["limit_mb_s"], row["broker_mb_s"] = (
                row[key] * answers.records_bytes / 1e6 for key in ("limit", "broker")
            )
            row["bar"] = bar
            rows.append(row)
    pieces.unlink()
    return rows


def _staggered(requests: list[bytes], connections: int) -> list[list[bytes]]:
    """Return the same sequence of reads for every connection, each starting at another place."""
    step = len(requests) // connections
    return [requests[number * step :] + requests[: number * step] for number in range(connections)]


def _compare(
    name: str, size: Size, connections: int, limit: Callable[[], Run], skylog: Callable[[], Run], rounds: int
) -> dict[str, Any]:
    """Measure limit and broker alternately. The ratio is the median of the rounds' ratios."""
    taken = [(limit(), skylog()) for _ in range(rounds)]
    limits, brokers = [pair[0] for pair in taken], [pair[1] for pair in taken]
    limit_cpu_us, broker_cpu_us = (median([run.cpu_us for run in runs]) for runs in (limits, brokers))
    return {
        "what": name,
        "size": size.label,
        "connections": connections,
        "limit": median([each.requests_per_second for each in limits]),
        "broker": median([each.requests_per_second for each in brokers]),
        "ratio": median([b.requests_per_second / a.requests_per_second for a, b in taken]),
        "limit_cpu_us": limit_cpu_us,
        "broker_cpu_us": broker_cpu_us,
        "cpu_ratio": limit_cpu_us / broker_cpu_us,
        "limit_generator_busy": median([each.busy for each in limits]),
        "messages_per_request": size.messages,
    }


COLUMNS = (
    Column("what", "what"),
    Column("size", "batch"),
    Column("connections", "conn", "{:d}"),
    Column("limit", "limit/s", "{:,.0f}"),
    Column("broker", "broker/s", "{:,.0f}"),
    Column("limit_mb_s", "limit MB/s", "{:,.0f}"),
    Column("broker_mb_s", "broker MB/s", "{:,.0f}"),
    Column("ratio", "ratio", "{:.2f}"),
    Column("bar", "bar", "{:.1f}"),
    Column("limit_cpu_us", "limit µs", "{:.1f}"),
    Column("broker_cpu_us", "broker µs", "{:.1f}"),
    Column("cpu_ratio", "CPU ratio", "{:.2f}"),
    Column("limit_generator_busy", "gen. busy", "{:.2f}"),
)


def _report(rows: list[dict[str, Any]]) -> Report:
    report = Report("limit", "the broker against a bare server on the same event loop")
    report.tables.append(Table(f"{IN_FLIGHT} requests in flight per connection", COLUMNS, rows))
    barred = [row for row in rows if row["bar"] is not None]
    for row in barred:
        report.checks.append(Check(_label(row), row["ratio"], row["bar"]))
    ratios = {"broker / limit": [row["ratio"] for row in barred]}
    bars = [row["bar"] for row in barred]
    report.plots.append(Plot("share of the limit", "ratio", [_tick(row) for row in barred], ratios, bars))
    for what in ("produce", "fetch"):
        mine = [row for row in rows if row["what"] == what]
        labels = [_tick(row) for row in mine]
        rates = {side: [row[f"{side}_mb_s"] for row in mine] for side in ("limit", "broker")}
        report.plots.append(Plot(f"{what}, record bytes", "MB/s", labels, rates, logarithmic=True))
    report.notes += [
        "Server pinned to one core, generator to another; medians; limit and broker take turns.",
        "limit/s and broker/s are requests; µs are CPU time of the server per request; ratio is broker/limit.",
        "The ratio of the CPU times (limit/broker) stands firmer when other work disturbs the machine.",
        "“gen. busy” near 1.0 means that the generator, not the bare server, was the limit of the limit.",
        "Fetches ask for 1 MiB of the partition, as consumers do; “one batch” asks for no more than a batch.",
    ]
    return report


def _label(row: dict[str, Any]) -> str:
    return f"{row['what']} {row['size']}, {row['connections']} conn."


def _tick(row: dict[str, Any]) -> str:
    return f"{row['what']}\n{row['size']}\n{row['connections']} conn."
