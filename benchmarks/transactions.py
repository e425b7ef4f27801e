"""What transactions cost: a producer that commits every 100 ms beside an idempotent one, on skylog and Apache Kafka.

Three brokers, three replicas. The figure is a ratio, transactional over idempotent throughput, of the same client on
the same cluster. It is compared with the same ratio of Apache Kafka, measured in the same run and in turns.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from benchmarks.clients import Client, together
from benchmarks.clusters import BrokerCluster, both, create_topic
from benchmarks.report import Check, Column, Options, Report, Table, median

PARTITIONS = 3
BATCHES = (50, 1000)
MESSAGES = {50: 300_000, 1000: 1_000_000}
COMMIT_MS = 100
WARM_UP_S = 60

Rates = dict[tuple[str, int, int], list[dict[str, float]]]
"""Results by cluster, batch and time between commits."""


def run(options: Options) -> Report:
    with both(options.work_dir) as (clusters, note):
        for cluster in clusters:
            create_topic(cluster, "bench", PARTITIONS)
            _warm_up(cluster, 5 if options.quick else WARM_UP_S)
        return _report(clusters, _measure(clusters, options), note)


def _warm_up(cluster: BrokerCluster, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for batch in BATCHES:
            for commit_ms in (0, COMMIT_MS):
                _produce(cluster, batch, commit_ms, MESSAGES[batch] // 50)


def _measure(clusters: Sequence[BrokerCluster], options: Options) -> Rates:
    """Measure both kinds of producers right after each other: their ratio is the figure."""
    found: Rates = {}
    for _ in range(1 if options.quick else options.rounds):
        for batch in BATCHES:
            for cluster in clusters:
                for commit_ms in (0, COMMIT_MS):
                    taken = _produce(cluster, batch, commit_ms, MESSAGES[batch] // (20 if options.quick else 1))
                    found.setdefault((cluster.name, batch, commit_ms), []).append(taken)
    return found


def _produce(cluster: BrokerCluster, batch: int, commit_ms: int, messages: int) -> dict[str, float]:
    """Return messages per second, and the CPU time of the brokers per message in microseconds."""
    how = {"topic": "bench", "messages": messages, "batch": batch, "partitions": PARTITIONS, "acks": "all"}
    client = Client("transact", cluster.bootstrap, transaction_ms=commit_ms, **how)
    before = cluster.cpu_seconds()
    [result] = together([client])
    cpu_s = cluster.cpu_seconds() - before
    total = result["messages"]
    return {"rate": total / (result["end"] - result["start"]), "cpu_us": cpu_s / total * 1e6}


def _report(clusters: Sequence[BrokerCluster], found: Rates, note: str) -> Report:
    report = Report("transactions", f"transactional over idempotent, commits every {COMMIT_MS} ms, beside Apache Kafka")
    rows: list[dict[str, Any]] = []
    for batch in BATCHES:
        for cluster in clusters:
            idempotent, transactional = (found[cluster.name, batch, commit_ms] for commit_ms in (0, COMMIT_MS))
            pairs = list(zip(idempotent, transactional, strict=True))
            rows.append(
                {
                    "batch": batch,
                    "cluster": cluster.name,
                    "idempotent": median([each["rate"] for each in idempotent]),
                    "transactional": median([each["rate"] for each in transactional]),
                    "ratio": median([after["rate"] / before["rate"] for before, after in pairs]),
                    "cpu": median([after["cpu_us"] / before["cpu_us"] for before, after in pairs]),
                }
            )
    columns = (
        Column("batch", "messages per batch"),
        Column("cluster", "cluster"),
        Column("idempotent", "idempotent messages/s", "{:,.0f}"),
        Column("transactional", "transactional messages/s", "{:,.0f}"),
        Column("ratio", "transactional/idempotent", "{:.3f}"),
        Column("cpu", "brokers' CPU per message, ratio", "{:.3f}"),
    )
    report.tables.append(Table("200 bytes a message, acks=all, one producer, three partitions", columns, rows))
    if len(clusters) == 2:
        for ours, theirs in zip(rows[::2], rows[1::2], strict=True):
            name = f"batches of {ours['batch']}: ratio over Kafka's ratio"
            report.checks.append(Check(name, ours["ratio"] / theirs["ratio"], 1.0))
    if note:
        report.notes.append(f"without Apache Kafka: {note}")
    return report
