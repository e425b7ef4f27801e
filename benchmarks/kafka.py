"""skylog beside Apache Kafka: one broker each, the same clients, in turns and in one run.

Both brokers run the whole time. Kafka is warmed up first: its JVM compiles what runs often. Every figure is measured
with one broker after the other, and the medians are compared. CPU time and memory are those of the broker, with its
cleaning process. `replication` compares clusters of three.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from benchmarks import frames, load
from benchmarks.channel import Channel, produce
from benchmarks.clients import Client, together
from benchmarks.clusters import BrokerCluster, both, create_topic, wait_until
from benchmarks.replication import BATCHES, PARTITIONS, latency, produce_batches, warm_up
from benchmarks.report import Check, Column, Options, Plot, Report, Table, median

SETTINGS = {
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.bytes": str(64 << 20),
}
WARM_UP_S = 30
CONNECTIONS = 8
IN_FLIGHT = 5
KEYED_MESSAGES = 3_000_000
MESSAGES_PER_KEY = 10
COMPACTION_S = 300
SETTLED_S = 2.0

Figures = dict[str, float]


class Row(NamedTuple):
    """One figure of both brokers. `bar` is that of skylog's figure over Kafka's."""

    key: str
    what: str
    form: str
    bar: float | None = None
    at_most: bool = False


ROWS = (
    *(Row(f"rate {batch}", f"produce, batches of {batch}, messages/s", "{:,.0f}", 1.0) for batch in BATCHES),
    *(Row(f"cpu {batch}", f"produce, batches of {batch}, CPU µs/message", "{:.2f}", 0.5, True) for batch in BATCHES),
    Row("requests", f"one message per request, {CONNECTIONS} connections, requests/s", "{:,.0f}", 3.0),
    Row("request cpu", "one message per request, CPU µs/request", "{:.1f}", 0.5, True),
    Row("consumed", "consume, messages/s", "{:,.0f}", 1.0),
    Row("consumer cpu", "consume, CPU µs/message", "{:.2f}", 0.5, True),
    Row("p50_ms", "latency at 500 messages/s, p50 ms", "{:.2f}", 0.6, True),
    Row("p99_ms", "latency at 500 messages/s, p99 ms", "{:.2f}", 1.0, True),
    Row("compaction", "compaction, MB/s", "{:,.0f}", 1.3),
    Row("compaction cpu", "compaction, CPU s", "{:.1f}", 1.0, True),
    Row("memory", "memory, MB", "{:,.0f}", 0.2, True),
    Row("start", "start to the first acknowledged message, s", "{:.2f}", 0.4, True),
)


def run(options: Options) -> Report:
    report = Report("kafka", "one broker, beside Apache Kafka")
    with both(options.work_dir, 1, SETTINGS) as (brokers, note):
        if note:
            report.notes.append(f"without Apache Kafka: {note}")
        for each in brokers:
            create_topic(each, "bench", PARTITIONS)
            create_topic(each, "paced", 1)
            warm_up(each, 5 if options.quick else WARM_UP_S)
        found = _measure(brokers, options)
    _fill(report, [each.name for each in brokers], found)
    return report


def _measure(brokers: Sequence[BrokerCluster], options: Options) -> dict[str, Figures]:
    """Return the medians of all figures, by broker."""
    rounds = 1 if options.quick else min(options.rounds, 3)
    found: dict[str, dict[str, list[float]]] = {each.name: defaultdict(list) for each in brokers}

    def take(measure: Callable[[BrokerCluster], Figures], times: int = 1) -> None:
        for _ in range(times):
            for broker in brokers:
                for key, value in measure(broker).items():
                    found[broker.name][key].append(value)

    for batch in BATCHES:
        take(lambda broker, batch=batch: _produce(broker, batch, options.quick), rounds)  # type: ignore[misc]
    take(lambda broker: _single_requests(broker, options), rounds)
    take(lambda broker: _consume(broker, options.quick), rounds)
    take(lambda broker: latency(broker, options.quick))
    take(lambda broker: {"memory": broker.rss_bytes() / 1e6})
    take(lambda broker: _compaction(broker, KEYED_MESSAGES // (10 if options.quick else 1)))
    take(_start, rounds)
    return {name: {key: median(values) for key, values in figures.items()} for name, figures in found.items()}


def _produce(broker: BrokerCluster, batch: int, quick: bool) -> Figures:
    found = produce_batches(broker, batch, quick)
    return {f"rate {batch}": found["rate"], f"cpu {batch}": found["cpu_us"]}


def _address(broker: BrokerCluster) -> tuple[str, int]:
    return "127.0.0.1", broker.ports[1]


def _single_requests(broker: BrokerCluster, options: Options) -> Figures:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    if "single" not in admin.list_topics(timeout=10).topics:
        create_topic(broker, "single", 1)
    request = frames.produce_request("single", frames.record_batch(1)).data
    before = broker.cpu_seconds()
    done = load.run(
        _address(broker),
        [[request] * 8] * CONNECTIONS,
        in_flight=IN_FLIGHT,
        error_at=frames.produce_error_at("single"),
        seconds=options.seconds * 3,
    )
    cpu_s = broker.cpu_seconds() - before
    return {"requests": done.requests_per_second, "request cpu": cpu_s / done.total_requests * 1e6}


def _consume(broker: BrokerCluster, quick: bool) -> Figures:
    messages = 200_000 if quick else 1_000_000
    client = Client("consume", broker.bootstrap, topic="bench", partitions=PARTITIONS, messages=messages, no_pauses=1)
    before = broker.cpu_seconds()
    [result] = together([client])
    cpu_s = broker.cpu_seconds() - before
    return {"consumed": messages / (result["end"] - result["start"]), "consumer cpu": cpu_s / messages * 1e6}


def _compaction(broker: BrokerCluster, messages: int) -> Figures:
    """Fill a topic, let it be compacted, and wait until its files no longer change."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("keyed", 1, 1)])["keyed"].result(30)
    _produce_keys(broker.bootstrap, messages)
    folder = broker.data_dir(1) / "keyed-0"
    full_bytes = _size_bytes(folder)
    before, began = broker.cpu_seconds(), time.perf_counter()
    resource = ConfigResource(ResourceType.TOPIC, "keyed")
    resource.add_incremental_config(
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    )
    admin.incremental_alter_configs([resource])[resource].result(30)
    changed_at, size_bytes = began, full_bytes
    while size_bytes > full_bytes / 2 or time.perf_counter() - changed_at < SETTLED_S:
        if time.perf_counter() - began > COMPACTION_S:
            raise RuntimeError(f"{broker.name} has not compacted the topic within {COMPACTION_S} s")
        time.sleep(0.02)
        if (now_bytes := _size_bytes(folder)) != size_bytes:
            changed_at, size_bytes = time.perf_counter(), now_bytes
    return {
        "compaction": full_bytes / 1e6 / (changed_at - began),
        "compaction cpu": broker.cpu_seconds() - before,
    }


def _produce_keys(bootstrap: str, messages: int) -> None:
    draw = random.Random(1)
    value = draw.randbytes(100).hex().encode()
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 1000, "linger.ms": 50})
    keys = [b"order-%010d" % number for number in range(messages // MESSAGES_PER_KEY)]
    left = messages
    while left > 0:
        chosen = [{"key": key, "value": value} for key in draw.choices(keys, k=min(left, 10_000))]
        while chosen:
            left -= (accepted := producer.produce_batch("keyed", chosen, partition=0))
            chosen = chosen[accepted:]
            producer.poll(0.01 if chosen else 0)
    if producer.flush(120):
        raise RuntimeError("the keyed messages were not delivered")


def _size_bytes(folder: Path) -> int:
    """Return the size of a partition's segments. Files may disappear meanwhile."""
    total = 0
    for path in folder.glob("*.log"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def _start(broker: BrokerCluster) -> Figures:
    """Stop the broker, start it again, and wait until it acknowledges a message."""
    broker.stop(1)
    began = time.perf_counter()
    broker.start(1)

    def is_acknowledged() -> bool:
        try:
            with Channel(_address(broker)) as channel:
                produce(channel, "single", frames.record_batch(1))
        except (OSError, RuntimeError):
            return False
        return True

    wait_until(is_acknowledged, 60, f"{broker.name} acknowledges a message", every_s=0.005)
    return {"start": time.perf_counter() - began}


def _fill(report: Report, names: Sequence[str], found: dict[str, Figures]) -> None:
    rows: list[dict[str, Any]] = []
    ours, *others = (found[name] for name in names)
    for row in ROWS:
        shown = {"what": row.what, "ours": row.form.format(ours[row.key])}
        for theirs in others:
            ratio = ours[row.key] / theirs[row.key]
            shown |= {"theirs": row.form.format(theirs[row.key]), "ratio": f"{ratio:.2f}"}
            if row.bar is not None:
                report.checks.append(Check(row.what, ratio, row.bar, row.at_most))
        rows.append(shown)
    columns = [Column("what", "what"), Column("ours", names[0])]
    if others:
        columns += [Column("theirs", names[1]), Column("ratio", "ratio")]
        ratios = [check.value for check in report.checks]
        labels = [check.name.replace(", ", "\n") for check in report.checks]
        report.plots.append(Plot("skylog over Apache Kafka", "ratio", labels, {"ratio": ratios}, logarithmic=True))
    report.tables.append(Table("", columns, rows))
