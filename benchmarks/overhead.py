"""The overhead of skylog's clients over bare confluent-kafka: both do the same work alternately, in one process.

Bare code is the loop from the library's own documentation: `produce` with a delivery callback and `poll(0)` after each;
`poll` for each message, with a check for errors. The leanest possible code (no callbacks and no polling; `consume` for
lists of messages) is shown beside it. It does less: for example, it does not detect failed deliveries. All use the same
settings.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.channel import create_topic
from benchmarks.report import Check, Column, Options, Report, Table, median
from benchmarks.servers import broker

VALUE = b"v" * 200
TOPIC = "bench"
OVERHEAD_BAR = 1.15
PRODUCER_SETTINGS: dict[str, Any] = {"enable.idempotence": True, "acks": "all", "partitioner": "murmur2_random"}
CONSUMER_SETTINGS: dict[str, Any] = {"enable.auto.commit": False, "fetch.queue.backoff.ms": 10}

Close = Callable[[], object]
Work = Callable[[str, int, Path], Close]
"""Does the work and returns what is to be called afterwards, which is not measured."""


def bare_produce(bootstrap: str, count: int, _: Path) -> Close:
    from confluent_kafka import Producer

    failures = []

    def on_delivery(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(message)

    producer = Producer({"bootstrap.servers": bootstrap, **PRODUCER_SETTINGS})
    for _number in range(count):
        while True:
            try:
                producer.produce(TOPIC, VALUE, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()
    assert not failures
    return producer.flush


def leanest_produce(bootstrap: str, count: int, _: Path) -> Close:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, **PRODUCER_SETTINGS})
    for _number in range(count):
        while True:
            try:
                producer.produce(TOPIC, VALUE)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    return producer.flush


def skylog_produce(bootstrap: str, count: int, _: Path) -> Close:
    from skylog import Producer

    producer = Producer(bootstrap)
    for _number in range(count):
        producer.send(TOPIC, VALUE)
    producer.flush()
    assert (producer.delivered_count, producer.failed_count) == (count, 0)
    return producer.close


def audited_produce(bootstrap: str, count: int, work_dir: Path) -> Close:
    from skylog import Producer
    from skylog.audit import ProducerAudit

    producer = Producer(bootstrap, audit=ProducerAudit("benchmark", journal_dir=work_dir))
    for _number in range(count):
        producer.send(TOPIC, VALUE)
    producer.flush()
    assert (producer.delivered_count, producer.failed_count) == (count, 0)
    return producer.close


def leanest_consume(bootstrap: str, count: int, _: Path) -> Close:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bare", **CONSUMER_SETTINGS})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    seen = size = 0
    while seen < count:
        for message in consumer.consume(1000, 0.1):
            if message.error() is not None:
                raise KafkaException(message.error())
            size += len(message.value() or b"")
            seen += 1
    return consumer.close


def bare_consume(bootstrap: str, count: int, _: Path) -> Close:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bare", **CONSUMER_SETTINGS})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    seen = size = 0
    while seen < count:
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error() is not None:
            raise KafkaException(message.error())
        size += len(message.value() or b"")
        seen += 1
    return consumer.close


def simple_consume(bootstrap: str, count: int, _: Path) -> Close:
    from skylog import SimpleConsumer

    size = 0
    consumer = SimpleConsumer(TOPIC, 0, 0, bootstrap)
    for seen, message in enumerate(consumer, 1):
        size += len(message.value or b"")
        if seen == count:
            break
    return consumer.close


def group_consume(bootstrap: str, count: int, _: Path) -> Close:
    return _consume_in_group(bootstrap, count)


def audited_consume(bootstrap: str, count: int, _: Path) -> Close:
    from skylog.audit import ConsumerAudit

    return _consume_in_group(bootstrap, count, audit=ConsumerAudit())


def _consume_in_group(bootstrap: str, count: int, **options: Any) -> Close:
    from skylog import Consumer

    size = 0
    consumer = Consumer(TOPIC, f"group-{time.monotonic_ns()}", bootstrap, **options)
    for seen, message in enumerate(consumer, 1):
        size += len(message.value or b"")
        if seen == count:
            break
    return consumer.close


PRODUCE: dict[str, Work] = {
    "bare: callback, poll": bare_produce,
    "bare: the leanest": leanest_produce,
    "Producer.send": skylog_produce,
    "Producer.send, audited": audited_produce,
}
CONSUME: dict[str, Work] = {
    "bare: poll for each": bare_consume,
    "bare: the leanest": leanest_consume,
    "SimpleConsumer": simple_consume,
    "Consumer": group_consume,
    "Consumer, audited": audited_consume,
}
HELD_TO_THE_BAR = ("Producer.send", "SimpleConsumer", "Consumer")


def run(options: Options) -> Report:
    count = 60_000 if options.quick else 300_000
    work_dir = Path(tempfile.mkdtemp(prefix="skylog-overhead-", dir=options.work_dir))
    report = Report("overhead", "skylog's clients against bare confluent-kafka, messages of 200 bytes")
    try:
        with broker(work_dir / "data", core=None) as server:
            create_topic(server.address, TOPIC, 1)
            for title, works in (("send", PRODUCE), ("consume", CONSUME)):
                taken = _measure(works, server.bootstrap, count, options.rounds, work_dir)
                rows = _rows(taken)
                report.tables.append(Table(f"{title}: µs are CPU time per message, of all threads", _COLUMNS, rows))
                report.checks += [
                    Check(f"{row['what']}: time over bare", row["ratio"], OVERHEAD_BAR, at_most=True)
                    for row in rows
                    if row["what"] in HELD_TO_THE_BAR
                ]
    finally:
        shutil.rmtree(work_dir)
    report.notes += [
        "“over bare” compares wall-clock time with the first row of each table, round by round; medians.",
        "A Consumer's time includes joining its group.",
    ]
    return report


_COLUMNS = (
    Column("what", "code"),
    Column("rate", "messages/s", "{:,.0f}"),
    Column("cpu_us", "CPU µs", "{:.2f}"),
    Column("ratio", "× bare", "{:.2f}"),
    Column("cpu_ratio", "CPU × bare", "{:.2f}"),
)


def _measure(
    works: dict[str, Work], bootstrap: str, count: int, rounds: int, work_dir: Path
) -> dict[str, list[tuple[float, float]]]:
    """Return seconds and CPU seconds per message of each round. Every round starts with another row."""
    names = list(works)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for number in range(rounds + 1):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            wall, cpu = time.perf_counter(), time.process_time()
            close = works[name](bootstrap, count, work_dir)
            took = (time.perf_counter() - wall) / count, (time.process_time() - cpu) / count
            close()
            if number:  # the first round warms up
                taken[name].append(took)
    return taken


def _rows(taken: dict[str, list[tuple[float, float]]]) -> list[dict[str, Any]]:
    bare = next(iter(taken.values()))
    return [
        {
            "what": name,
            "rate": 1 / median([wall for wall, _ in rounds]),
            "cpu_us": median([cpu for _, cpu in rounds]) * 1e6,
            "ratio": median([wall / before for (wall, _), (before, _) in zip(rounds, bare, strict=True)]),
            "cpu_ratio": median([cpu / before for (_, cpu), (_, before) in zip(rounds, bare, strict=True)]),
        }
        for name, rounds in taken.items()
    ]
