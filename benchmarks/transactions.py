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
COMMIT_MS = 100
WARM_UP_S = 60
PAIRS, TURN_S = 5, 2.0

Rates = dict[tuple[str, int], list[tuple[float, float]]]
"""Idempotent and transactional messages per second, in turns that followed each other, by cluster and batch."""


def run(options: Options) -> Report:
    with both(options.work_dir, is_quick=options.quick) as (clusters, note):
        for cluster in clusters:
            create_topic(cluster, "bench", PARTITIONS)
            _warm_up(cluster, 5 if options.quick else WARM_UP_S)
        return _report(clusters, _measure(clusters, options), note)


def _warm_up(cluster: BrokerCluster, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for batch in BATCHES:
            _produce(cluster, batch, 1, 1.0)


def _measure(clusters: Sequence[BrokerCluster], options: Options) -> Rates:
    """Measure both kinds of producers right after each other: their ratio is the figure."""
    found: Rates = {}
    for _ in range(2 if options.quick else options.rounds):
        for batch in BATCHES:
            for cluster in clusters:
                taken = _produce(cluster, batch, PAIRS, 1.0 if options.quick else TURN_S)
                found.setdefault((cluster.name, batch), []).extend(taken)
    return found


def _produce(cluster: BrokerCluster, batch: int, pairs: int, seconds: float) -> list[tuple[float, float]]:
    how = {"topic": "bench", "batch": batch, "partitions": PARTITIONS, "acks": "all", "transaction_ms": COMMIT_MS}
    [result] = together([Client("transact", cluster.bootstrap, pairs=pairs, seconds=seconds, **how)])
    return [(idempotent, transactional) for idempotent, transactional in result["pairs"]]


def _report(clusters: Sequence[BrokerCluster], found: Rates, note: str) -> Report:
    report = Report("transactions", f"transactional over idempotent, commits every {COMMIT_MS} ms, beside Apache Kafka")
    rows: list[dict[str, Any]] = []
    for batch in BATCHES:
        for cluster in clusters:
            pairs = found[cluster.name, batch]
            ratios = sorted(transactional / idempotent for idempotent, transactional in pairs)
            rows.append(
                {
                    "batch": batch,
                    "cluster": cluster.name,
                    "idempotent": median([idempotent for idempotent, _ in pairs]),
                    "transactional": median([transactional for _, transactional in pairs]),
                    "ratio": median(ratios),
                    "quartiles": f"{ratios[len(ratios) // 4]:.2f} to {ratios[-1 - len(ratios) // 4]:.2f}",
                }
            )
    columns = (
        Column("batch", "messages per batch"),
        Column("cluster", "cluster"),
        Column("idempotent", "idempotent messages/s", "{:,.0f}"),
        Column("transactional", "transactional messages/s", "{:,.0f}"),
        Column("ratio", "transactional/idempotent", "{:.3f}"),
        Column("quartiles", "half of the ratios are from"),
    )
    report.tables.append(Table("200 bytes a message, acks=all, three partitions", columns, rows))
    if len(clusters) == 2:
        for ours, theirs in zip(rows[::2], rows[1::2], strict=True):
            name = f"batches of {ours['batch']}: ratio over Kafka's ratio"
            report.checks.append(Check(name, ours["ratio"] / theirs["ratio"], 1.0))
    if note:
        report.notes.append(f"without Apache Kafka: {note}")
    return report
