"""Three brokers, three replicas, acks=all: skylog beside Apache Kafka, in turns and in one run.

Same settings, same confluent-kafka clients, same machine. Both clusters run the whole time, and every row measures one
after the other. Kafka is warmed up first: its JVM compiles what runs often. CPU time and memory are those of the three
brokers, without ZooKeeper.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Producer

from benchmarks.clients import Client, together
from benchmarks.clusters import BrokerCluster, both, create_topic, leader_of
from benchmarks.report import Check, Column, Options, Report, Table, median

PARTITIONS = 3
BATCHES = (1, 50, 1000)
MESSAGES = {1: 10_000, 50: 150_000, 1000: 400_000}
TURNS = 5  # of each cluster: a turn that is too long measures how the kernel writes to the disk
RATE = 500
IGNORED = 300
WARM_UP_S = 60
FULL_BATCH_MS = 100  # with librdkafka's default of 5 ms, the faster a broker answers, the smaller are its batches


def run(options: Options) -> Report:
    with both(options.work_dir, is_quick=options.quick) as (clusters, note):
        for cluster in clusters:
            create_topic(cluster, "bench", PARTITIONS)
            create_topic(cluster, "paced", 1)
            warm_up(cluster, 5 if options.quick else WARM_UP_S)
        return _measure(clusters, options, note)


def warm_up(cluster: BrokerCluster, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for batch in BATCHES:
            together(_producers(cluster, batch, MESSAGES[batch] // 10))


def _measure(clusters: Sequence[BrokerCluster], options: Options, note: str) -> Report:
    turns = 1 if options.quick else TURNS * min(options.rounds, 3)
    produced: dict[tuple[str, int], list[dict[str, float]]] = {
        (each.name, batch): [] for each in clusters for batch in BATCHES
    }
    for batch in BATCHES:
        for turn in range(turns):
            for cluster in clusters if turn % 2 else clusters[::-1]:
                produced[cluster.name, batch].append(produce_batches(cluster, batch, MESSAGES[batch] // TURNS))
    ages = {cluster.name: latency(cluster, options.quick) for cluster in clusters}
    memory = {cluster.name: cluster.rss_bytes() / 1e6 for cluster in clusters}
    failovers = {cluster.name: fail_over(cluster) for cluster in clusters}
    return _report(clusters, produced, ages, memory, failovers, note)


def _producers(cluster: BrokerCluster, batch: int, messages: int) -> list[Client]:
    how = {"topic": "bench", "messages": messages, "batch": batch, "producers": PARTITIONS, "acks": "all"}
    if batch > 1:
        how["linger_ms"] = FULL_BATCH_MS
    return [Client("produce", cluster.bootstrap, first=0, **how)]


def produce_batches(cluster: BrokerCluster, batch: int, messages: int) -> dict[str, float]:
    """Send `messages` to each partition. Return messages per second, and CPU time per message in microseconds."""
    clients = _producers(cluster, batch, messages)
    before = cluster.cpu_seconds()
    [result] = together(clients)
    cpu_s = cluster.cpu_seconds() - before
    total = result["messages"]
    return {"rate": total / (result["end"] - result["start"]), "cpu_us": cpu_s / total * 1e6}


def latency(cluster: BrokerCluster, quick: bool, topic: str = "paced") -> dict[str, float]:
    """Return how old messages are when a consumer receives them. The topic must be empty."""
    messages = IGNORED + RATE * (4 if quick else 16)
    listener = Client("listen", cluster.bootstrap, topic=topic, messages=messages)
    pacer = Client("pace", cluster.bootstrap, topic=topic, messages=messages, acks="all", linger_ms=0, rate=RATE)
    listener.begin()
    pacer.begin()
    pacer.result()
    points = statistics.quantiles(listener.result()["ages"][IGNORED:], n=100)
    return {"p50_ms": points[49] * 1e3, "p99_ms": points[98] * 1e3}


def fail_over(cluster: BrokerCluster) -> float:
    """Kill the leader of a partition under an idempotent producer. Return how long nothing was acknowledged."""
    create_topic(cluster, "failover", 1)
    acknowledged: list[float] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 0})
    stopping = threading.Event()

    def delivered(error: object, _: object) -> None:
        if error is None:
            acknowledged.append(time.perf_counter())

    def send() -> None:
        while not stopping.is_set():
            producer.produce("failover", b"x" * 100, on_delivery=delivered)
            producer.poll(0.005)

    sender = threading.Thread(target=send)
    sender.start()
    time.sleep(2)
    leader = leader_of(cluster, "failover")
    killed = time.perf_counter()
    cluster.kill(leader)
    time.sleep(25)
    stopping.set()
    sender.join()
    producer.flush(30)
    cluster.start(leader)
    after = [each for each in acknowledged if each > killed]
    gaps = [later - earlier for earlier, later in zip([killed, *after], after, strict=False)]
    return max(gaps)


def _report(
    clusters: Sequence[BrokerCluster],
    produced: dict[tuple[str, int], list[dict[str, float]]],
    ages: dict[str, dict[str, float]],
    memory: dict[str, float],
    failovers: dict[str, float],
    note: str,
) -> Report:
    report = Report("replication", "three brokers, three replicas, acks=all, beside Apache Kafka")
    rows: list[dict[str, Any]] = []
    for batch in BATCHES:
        for cluster in clusters:
            taken = produced[cluster.name, batch]
            rate, cpu_us = (median([each[key] for each in taken]) for key in ("rate", "cpu_us"))
            rows.append({"cluster": cluster.name, "batch": batch, "rate": rate, "cpu_us": cpu_us})
    report.tables.append(
        Table(
            "produce, 200 bytes a message",
            [
                Column("batch", "messages per batch"),
                Column("cluster", "cluster"),
                Column("rate", "messages/s", "{:,.0f}"),
                Column("cpu_us", "CPU µs/message", "{:.2f}"),
            ],
            rows,
        )
    )
    others = [{"cluster": name, **ages[name], "memory": memory[name], "failover": failovers[name]} for name in ages]
    report.tables.append(
        Table(
            "latency at 500 messages/s, memory, failover",
            [
                Column("cluster", "cluster"),
                Column("p50_ms", "p50 ms", "{:.2f}"),
                Column("p99_ms", "p99 ms", "{:.2f}"),
                Column("memory", "memory MB", "{:,.0f}"),
                Column("failover", "failover s", "{:.1f}"),
            ],
            others,
        )
    )
    if len(clusters) == 2:
        report.checks += _checks(rows, others)
    if note:
        report.notes.append(f"without Apache Kafka: {note}")
    return report


def _checks(rows: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> list[Check]:
    checks = []
    for ours, theirs in zip(rows[::2], rows[1::2], strict=True):
        name = f"batches of {ours['batch']}"
        checks.append(Check(f"{name}: rate beside Kafka's", ours["rate"] / theirs["rate"], 1.0))
        checks.append(Check(f"{name}: CPU beside Kafka's", ours["cpu_us"] / theirs["cpu_us"], 0.5, at_most=True))
    ours, theirs = others
    for key, name, bar in (("p50_ms", "p50", 1.0), ("p99_ms", "p99", 1.0), ("memory", "memory", 0.2)):
        checks.append(Check(f"{name} beside Kafka's", ours[key] / theirs[key], bar, at_most=True))
    checks.append(Check("failover beside Kafka's", ours["failover"] / theirs["failover"], 1.0, at_most=True))
    return checks
