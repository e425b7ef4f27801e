"""What `kafka` measures of compaction: its speed with three codecs, and the latency of a producer beside it.

A topic is filled with keyed messages, a tenth as many keys as messages. Then its policy becomes `compact`, and the time
runs until its files no longer change. The active segment is left alone by both brokers, and is not counted.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from benchmarks import compaction
from benchmarks.channel import Channel
from benchmarks.clusters import BrokerCluster
from benchmarks.kafka_parts import Figures, address_of

CODECS = ("none", "lz4", "zstd")
MESSAGES = 3_000_000
WARM_UP_MESSAGES = 500_000
MESSAGES_PER_KEY = 10
VALUES = 5_000
SEGMENT_BYTES = {"none": 64 << 20, "lz4": 32 << 20, "zstd": 16 << 20}
COMPACTION_S = 300
SETTLED_S = 1.5


class Compaction:
    """The speed of compaction with one codec. The first call for a broker also warms up its cleaner."""

    def __init__(self, codec: str, quick: bool) -> None:
        self._codec = codec
        self._messages = MESSAGES // (10 if quick else 1)
        self._warm: set[str] = set()

    def __call__(self, broker: BrokerCluster) -> Figures:
        if broker.name not in self._warm:
            self._warm.add(broker.name)
            self._measure(broker, WARM_UP_MESSAGES if self._messages == MESSAGES else self._messages)
        return self._measure(broker, self._messages)

    def _measure(self, broker: BrokerCluster, messages: int) -> Figures:
        topic = Keyed(broker, self._codec, messages)
        before, began = broker.cpu_seconds(), time.perf_counter()
        topic.make_compacted()
        while not topic.is_compacted():
            time.sleep(0.02)
        seconds, cpu_s = topic.changed_at - began, broker.cpu_seconds() - before
        topic.delete()
        key = f"{self._codec} compaction"
        return {key: topic.closed_bytes / 1e6 / seconds, f"{key} cpu": cpu_s / (topic.closed_bytes / 1e9)}


class Beside:
    """The p99 of a producer of 1,000 small requests a second while a topic is compacted, over the one before."""

    def __init__(self, quick: bool) -> None:
        self._messages = MESSAGES // (10 if quick else 1)

    def __call__(self, broker: BrokerCluster) -> Figures:
        topic = Keyed(broker, "none", self._messages)
        with Channel(address_of(broker)) as channel:
            idle = compaction.idle_latencies(channel)
            topic.make_compacted()
            began = time.perf_counter()
            during = compaction.latencies(channel, lambda _: topic.is_compacted())
            share = (topic.changed_at - began) / (time.perf_counter() - began)
        topic.delete()
        return {"beside": _p99(during[: int(len(during) * share)]) / _p99(idle)}


def _p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[98]


class Keyed:
    """A topic with keyed messages in closed segments, to be compacted."""

    def __init__(self, broker: BrokerCluster, codec: str, messages: int) -> None:
        self._broker = broker
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        self._topic = f"keyed-{time.monotonic_ns()}"
        segment_bytes = SEGMENT_BYTES[codec] * messages // MESSAGES
        new = NewTopic(self._topic, 1, 1, config={"segment.bytes": str(max(segment_bytes, 1 << 20))})
        self._admin.create_topics([new])[self._topic].result(30)
        _produce_keys(broker.bootstrap, self._topic, messages, codec)
        os.sync()
        time.sleep(SETTLED_S)
        self._folder = broker.data_dir(1) / f"{self._topic}-0"
        sizes = _segment_sizes(self._folder)
        self._size_bytes = sum(sizes.values())
        self._goal_bytes = self._size_bytes / 2
        self.closed_bytes = self._size_bytes - sizes[max(sizes)]
        self.changed_at = self._began = time.perf_counter()

    def make_compacted(self) -> None:
        resource = ConfigResource(ResourceType.TOPIC, self._topic)
        entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
        resource.add_incremental_config(entry)
        self._admin.incremental_alter_configs([resource])[resource].result(30)
        self._began = time.perf_counter()

    def is_compacted(self) -> bool:
        """Look at the files. Return whether they are less than half as large, and have not changed for a while."""
        now = time.perf_counter()
        if now - self._began > COMPACTION_S:
            raise RuntimeError(f"{self._broker.name} has not compacted {self._topic} within {COMPACTION_S} s")
        if (size_bytes := sum(_segment_sizes(self._folder).values())) != self._size_bytes:
            self.changed_at, self._size_bytes = now, size_bytes
        return self._size_bytes <= self._goal_bytes and now - self.changed_at > SETTLED_S

    def delete(self) -> None:
        self._admin.delete_topics([self._topic])[self._topic].result(30)


def _produce_keys(bootstrap: str, topic: str, messages: int, codec: str) -> None:
    draw = random.Random(1)
    values = [draw.randbytes(50).hex().encode() + b"paid,sent," * 10 for _ in range(VALUES)]
    keys = [b"order-%010d" % number for number in range(messages // MESSAGES_PER_KEY)]
    settings = {"batch.num.messages": 1000, "linger.ms": 50, "compression.type": codec}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    left = messages
    while left > 0:
        count = min(left, 10_000)
        pairs = zip(draw.choices(keys, k=count), draw.choices(values, k=count), strict=True)
        chosen = [{"key": key, "value": value} for key, value in pairs]
        while chosen:
            left -= (accepted := producer.produce_batch(topic, chosen, partition=0))
            chosen = chosen[accepted:]
            producer.poll(0.01 if chosen else 0)
    if producer.flush(120):
        raise RuntimeError("the keyed messages were not delivered")


def _segment_sizes(folder: Path) -> dict[str, int]:
    """Return the sizes of a partition's segments. Files may disappear meanwhile."""
    sizes = {}
    for path in folder.glob("*.log"):
        try:
            sizes[path.name] = path.stat().st_size
        except FileNotFoundError:
            continue
    return sizes
