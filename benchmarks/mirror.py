"""A backlog copied from one cluster to another: skylog's mirror beside MirrorMaker 2, in one run.

Source and targets are single skylog brokers, so the two differ only in who copies: the target itself, or MirrorMaker in
a JVM of its own. Time and CPU are counted from the first message that arrives to the last: the start of the JVM is left
out. CPU time is that of the target and, for MirrorMaker, of its process. MirrorMaker has its default settings, except
that it creates internal topics with one replica and looks for new topics every second. The lag is the age of messages
that arrive at a steady rate, from the producer's timestamp to the first sight of the message at the target.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.clusters import SkylogCluster, _cpu_seconds, create_topic, wait_until
from benchmarks.report import Check, Column, Options, Report, Table, median
from skylog.client import Connection
from skylog.client.mirrors import MirrorAdmin
from tests.spark.peers.jars import NoJarsError, broker_jars, mirror_maker_jars

TOPIC = "bench"
PARTITIONS = 3
MESSAGE_BYTES = 1000
MESSAGES = 600_000
PACED = 200
RATE = 50
BAR = 3.0
PATIENCE_S = 240
_HEAP = "1G"
_KEYS = 1000


def run(options: Options) -> Report:
    report = Report("mirror", "a backlog and steady messages, mirrored from one broker to another")
    rows = []
    with ExitStack() as stack:
        work_dir = Path(tempfile.mkdtemp(prefix="skylog-mirror-", dir=options.work_dir))
        stack.callback(shutil.rmtree, work_dir, ignore_errors=True)
        source = _broker(stack, work_dir / "source")
        create_topic(source, TOPIC, PARTITIONS)
        count = MESSAGES // (4 if options.quick else 1)
        _fill(source, count)
        target = _broker(stack, work_dir / "skylog")
        rows.append(_measure("skylog", source, target, count, lambda: _own_mirror(source, target)))
        try:
            jars = [*mirror_maker_jars(), *broker_jars()]
        except NoJarsError as error:
            report.notes.append(f"without MirrorMaker 2: {error}")
        else:
            other = _broker(stack, work_dir / "mm2")
            rows.append(
                _measure("MirrorMaker 2", source, other, count, lambda: _mirror_maker(jars, work_dir, source, other))
            )
    _fill_report(report, rows)
    return report


def _broker(stack: ExitStack, path: Path) -> SkylogCluster:
    path.mkdir()
    return stack.enter_context(SkylogCluster(path, 1))


def _fill(source: SkylogCluster, count: int) -> None:
    """Produce messages that compress a little, as text does, in batches of librdkafka's usual size."""
    producer = Producer(
        {"bootstrap.servers": source.bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 100_000}
    )
    value = bytes(range(256)) * (MESSAGE_BYTES // 256) + b"x" * (MESSAGE_BYTES % 256)
    for number in range(count):
        while True:
            try:
                producer.produce(TOPIC, value, str(number % _KEYS))
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()


Starter = Callable[[], "_Copier"]


class _Copier:
    """What copies, and the CPU time that it has used beside the target."""

    def __init__(self, topic: str, process: subprocess.Popen[bytes] | None = None) -> None:
        self.topic = topic
        self._process = process

    def cpu_seconds(self) -> float:
        return 0.0 if self._process is None else _cpu_seconds(self._process.pid)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def _own_mirror(source: SkylogCluster, target: SkylogCluster) -> _Copier:
    MirrorAdmin(Connection(target.bootstrap)).create("bench", source.bootstrap, [TOPIC])
    return _Copier(TOPIC)


def _mirror_maker(jars: list[Path], work_dir: Path, source: SkylogCluster, target: SkylogCluster) -> _Copier:
    replicated = ("config.storage", "offset.storage", "status.storage")
    settings = {
        "clusters": "source,target",
        "source.bootstrap.servers": source.bootstrap,
        "target.bootstrap.servers": target.bootstrap,
        "source->target.enabled": "true",
        "source->target.topics": TOPIC,
        "target->source.enabled": "false",
        "emit.heartbeats.enabled": "false",
        "emit.checkpoints.enabled": "false",
        "tasks.max": str(PARTITIONS),
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "refresh.topics.interval.seconds": "1",
        **{f"{name}.replication.factor": "1" for name in replicated},
    }
    path = work_dir / "mm2.properties"
    path.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
    java = ["java", f"-Xmx{_HEAP}", "-server", "-XX:+UseG1GC", "-cp", ":".join(map(str, jars))]
    with (work_dir / "mm2.log").open("wb") as log:
        command = [*java, "org.apache.kafka.connect.mirror.MirrorMaker", str(path)]
        return _Copier(f"source.{TOPIC}", subprocess.Popen(command, stdout=log, stderr=log, cwd=work_dir))


@contextmanager
def _consumer(target: SkylogCluster) -> Iterator[Consumer]:
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "bench", "enable.auto.commit": False})
    try:
        yield consumer
    finally:
        consumer.close()


def _measure(
    name: str, source: SkylogCluster, target: SkylogCluster, count: int, start: Starter
) -> dict[str, float | str]:
    copier = start()
    try:
        with _consumer(target) as consumer:
            wait_until(lambda: _arrived(consumer, copier.topic) > 0, PATIENCE_S, f"{name} copies", 0.01)
            before = _arrived(consumer, copier.topic)
            began, cpu_began = time.perf_counter(), target.cpu_seconds() + copier.cpu_seconds()
            wait_until(lambda: _arrived(consumer, copier.topic) >= count, PATIENCE_S, f"{name} has copied", 0.02)
            seconds = time.perf_counter() - began
            cpu_s = target.cpu_seconds() + copier.cpu_seconds() - cpu_began
            megabytes = (count - before) * MESSAGE_BYTES / 1e6
            ages = _lag(source, consumer, copier.topic)
        return {
            "name": name,
            "rate": megabytes / seconds,
            "cpu": cpu_s,
            "per_cpu": megabytes / max(cpu_s, 0.01),
            "p50_ms": median(ages),
            "p99_ms": sorted(ages)[int(len(ages) * 0.99)],
        }
    finally:
        copier.stop()


def _arrived(consumer: Consumer, topic: str) -> int:
    known = consumer.list_topics(timeout=10).topics
    if topic not in known:
        return 0
    ends = (consumer.get_watermark_offsets(TopicPartition(topic, index), 10) for index in range(PARTITIONS))
    return sum(end for _, end in ends)


def _lag(source: SkylogCluster, consumer: Consumer, topic: str) -> list[float]:
    """Return the ages in milliseconds of messages that are sent at a steady rate, as they arrive at the target."""
    ends = {index: consumer.get_watermark_offsets(TopicPartition(topic, index), 10)[1] for index in range(PARTITIONS)}
    consumer.assign([TopicPartition(topic, index, end) for index, end in ends.items()])
    producer = Producer({"bootstrap.servers": source.bootstrap, "linger.ms": 0})
    ages: list[float] = []
    due = time.perf_counter()
    deadline = time.monotonic() + PATIENCE_S
    sent = 0
    while len(ages) < PACED and time.monotonic() < deadline:
        if sent < PACED and time.perf_counter() >= due:
            producer.produce(TOPIC, b"paced", str(sent))
            due += 1 / RATE
            sent += 1
        producer.poll(0)
        message = consumer.poll(0.001)
        if message is not None and message.error() is None:
            ages.append(time.time() * 1000 - message.timestamp()[1])
    return ages


def _fill_report(report: Report, rows: list[dict[str, float | str]]) -> None:
    report.tables.append(
        Table(
            f"{PARTITIONS} partitions, messages of {MESSAGE_BYTES} bytes",
            [
                Column("name", "mirror"),
                Column("rate", "MB/s", "{:,.1f}"),
                Column("cpu", "CPU s", "{:.2f}"),
                Column("per_cpu", "MB per CPU s", "{:,.1f}"),
                Column("p50_ms", "lag p50 ms", "{:,.1f}"),
                Column("p99_ms", "lag p99 ms", "{:,.1f}"),
            ],
            rows,
        )
    )
    if len(rows) > 1:
        ratio = float(rows[0]["per_cpu"]) / float(rows[1]["per_cpu"])
        report.checks.append(Check("throughput per CPU second, over MirrorMaker 2", ratio, BAR))
