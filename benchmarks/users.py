"""The throughput that users get: confluent-kafka producers and a consumer against the broker, on one machine.

The setting is that of the reference figures: 8 producers send 200-byte messages in batches of 50, then one consumer
reads everything back. Clients are separate processes and share the machine's cores with the broker. On two cores the
clients need more CPU time than the broker, so the figures depend on them as much as on the broker. The columns of CPU
time per message show which side was the limit.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.channel import create_topic
from benchmarks.clients import Client, together
from benchmarks.report import Check, Column, Options, Plot, Report, Table, median
from benchmarks.servers import Server, broker

TOPIC = "bench"
PRODUCERS = 8
CLIENT_PROCESSES = max(1, min(PRODUCERS, (os.cpu_count() or 2) // 2))
VALUE_BYTES = 200
REFERENCE = {"produce": 111_729, "consume": 193_681}
MULTIPLE_BAR = 5.0


def run(options: Options) -> Report:
    messages = 100_000 if options.quick else 250_000
    rounds = min(options.rounds, 3)
    rows: list[dict[str, Any]] = []
    for label, batch in (("50 messages", 50), ("librdkafka's default", 0)):
        taken = [_round(options.work_dir, messages, batch) for _ in range(rounds)]
        rows += [_row(name, label, [each[name] for each in taken]) for name in taken[0]]
    return _report(rows)


def _round(work_dir: Path, messages: int, batch: int) -> dict[str, dict[str, float]]:
    data_dir = Path(tempfile.mkdtemp(prefix="skylog-users-", dir=work_dir))
    try:
        with broker(data_dir, core=None) as server:
            create_topic(server.address, TOPIC, PRODUCERS)
            taken = {"produce": _measure(server, lambda: _producers(server, messages, batch))}
            taken["consume"] = _measure(server, lambda: [_consumer(server, messages, no_pauses=1)])
            if batch:
                taken["consume, all defaults"] = _measure(server, lambda: [_consumer(server, messages, no_pauses=0)])
    finally:
        shutil.rmtree(data_dir)
    return taken


def _producers(server: Server, messages: int, batch: int) -> list[Client]:
    each = PRODUCERS // CLIENT_PROCESSES
    how = {"topic": TOPIC, "messages": messages, "batch": batch, "producers": each}
    return [Client("produce", server.bootstrap, first=number * each, **how) for number in range(CLIENT_PROCESSES)]


def _consumer(server: Server, messages: int, no_pauses: int) -> Client:
    how = {"topic": TOPIC, "messages": messages * PRODUCERS, "partitions": PRODUCERS, "no_pauses": no_pauses}
    return Client("consume", server.bootstrap, **how)


def _measure(server: Server, make: Callable[[], list[Client]]) -> dict[str, float]:
    clients = make()
    before = server.cpu_seconds()
    results = together(clients)
    count = sum(each["messages"] for each in results)
    seconds = max(each["end"] for each in results) - min(each["start"] for each in results)
    return {
        "rate": count / seconds,
        "broker_us": (server.cpu_seconds() - before) / count * 1e6,
        "client_us": sum(each["cpu_s"] for each in results) / count * 1e6,
        "rss_mb": server.rss_bytes() / 1e6,
    }


def _row(what: str, label: str, taken: list[dict[str, float]]) -> dict[str, Any]:
    figures = {key: median([each[key] for each in taken]) for key in taken[0]}
    multiple = figures["rate"] / REFERENCE[what.partition(",")[0]]
    return {"what": what, "batch": label, "multiple": multiple, "mb_s": figures["rate"] * VALUE_BYTES / 1e6} | figures


def _report(rows: list[dict[str, Any]]) -> Report:
    report = Report("users", "confluent-kafka: 8 producers, then 1 consumer, 200-byte messages")
    columns = (
        Column("what", "what"),
        Column("batch", "batch"),
        Column("rate", "messages/s", "{:,.0f}"),
        Column("mb_s", "MB/s", "{:,.0f}"),
        Column("multiple", "× the reference", "{:.1f}"),
        Column("broker_us", "broker µs", "{:.2f}"),
        Column("client_us", "clients µs", "{:.2f}"),
        Column("rss_mb", "broker RSS MB", "{:.0f}"),
    )
    report.tables.append(Table("µs are CPU time per message", columns, rows))
    rows = [row for row in rows if row["what"] in REFERENCE]
    report.checks += [Check(f"{row['what']}, {row['batch']}: multiple", row["multiple"], MULTIPLE_BAR) for row in rows]
    labels = [f"{row['what']}\n{row['batch']}" for row in rows]
    bars = [REFERENCE[row["what"]] * MULTIPLE_BAR for row in rows]
    rates = {"skylog": [row["rate"] for row in rows], "reference": [float(REFERENCE[row["what"]]) for row in rows]}
    report.plots.append(Plot("messages of 200 bytes", "messages/s", labels, rates, bars))
    report.notes += [
        f"The reference: {REFERENCE['produce']:,} messages/s in and {REFERENCE['consume']:,} out, batches of 50.",
        f"{PRODUCERS} producers in {CLIENT_PROCESSES} process(es), {os.cpu_count()} cores for clients and broker.",
        "Consumers run with fetch.queue.backoff.ms=1: by default librdkafka pauses fast readers for a second.",
        "acks=1; the consumer uses assign(), no group; medians of fresh brokers.",
    ]
    return report
