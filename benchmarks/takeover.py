"""Ten consumers take over 900 new partitions: the classic protocol beside the consumer protocol (KIP-848).

The consumers start together and share 100 partitions. Then the topic gets 900 more. Measured are the time of the start,
the time until all 1,000 are assigned, the partitions that consumers had to give up for that, and the longest time for
which one of the first 100 partitions had no owner. Consumers of the classic protocol find new partitions with their own
metadata refresh, which is set to the interval of the broker's heartbeats; librdkafka's default is five minutes.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from benchmarks.report import Check, Column, Options, Plot, Report, Table, median
from benchmarks.servers import broker

CONSUMERS = 10
BEFORE, ADDED = 100, 900
HEARTBEAT_MS = 5000
PATIENCE_S = 120.0
BAR_S = 15.0
"""Three heartbeats. One is enough on an idle machine: its response has the new partitions."""

CLASSIC: dict[str, Any] = {"topic.metadata.refresh.interval.ms": HEARTBEAT_MS, "heartbeat.interval.ms": 3000}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic, range": {**CLASSIC, "partition.assignment.strategy": "range"},
    "classic, cooperative-sticky": {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"},
    "consumer, uniform": {"group.protocol": "consumer", "group.remote.assignor": "uniform"},
}


class Owners:
    """Who owns which partition, as the consumers' callbacks report it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: dict[int, int] = {}
        self._free_since: dict[int, float] = {}
        self.given_up = 0
        self.longest_gap_s = 0.0

    def assigned(self, consumer: int, partitions: list[TopicPartition]) -> None:
        with self._lock:
            for each in partitions:
                self._owners[each.partition] = consumer
                since = self._free_since.pop(each.partition, None)
                if since is not None:
                    self.longest_gap_s = max(self.longest_gap_s, time.perf_counter() - since)

    def revoked(self, consumer: int, partitions: list[TopicPartition]) -> None:
        with self._lock:
            for each in partitions:
                if self._owners.get(each.partition) == consumer:
                    del self._owners[each.partition]
                    self._free_since[each.partition] = time.perf_counter()
                    self.given_up += 1

    def wait_for(self, count: int) -> float:
        """Wait until this many partitions have owners, and each consumer its share. Return the seconds."""
        started = time.perf_counter()
        while True:
            with self._lock:
                owners = list(self._owners.values())
            if len(owners) == count and all(owners.count(each) == count // CONSUMERS for each in range(CONSUMERS)):
                return time.perf_counter() - started
            if time.perf_counter() - started > PATIENCE_S:
                raise RuntimeError(f"{len(owners)} of {count} partitions have owners after {PATIENCE_S:.0f} s")
            time.sleep(0.01)


class Member(threading.Thread):
    """A consumer that polls until it is stopped."""

    def __init__(self, number: int, config: dict[str, Any], topic: str, owners: Owners) -> None:
        super().__init__(daemon=True)
        self._number, self._topic, self._owners = number, topic, owners
        self._consumer = Consumer(config)
        self.stopping = threading.Event()

    def run(self) -> None:
        self._consumer.subscribe(
            [self._topic],
            on_assign=lambda _, partitions: self._owners.assigned(self._number, partitions),
            on_revoke=lambda _, partitions: self._owners.revoked(self._number, partitions),
        )
        while not self.stopping.is_set():
            self._consumer.poll(0.05)
        self._consumer.close()


def run(options: Options) -> Report:
    rounds = 1 if options.quick else min(options.rounds, 3)
    rows: list[dict[str, Any]] = []
    for name, config in PROTOCOLS.items():
        results = [_measure(config, options) for _ in range(rounds)]
        keys = ("start_s", "seconds", "given_up", "gap_s")
        figures = {key: median([each[at] for each in results]) for at, key in enumerate(keys)}
        rows.append({"protocol": name, **figures})
    columns = [
        Column("protocol", "protocol"),
        Column("start_s", "start, s", "{:.2f}"),
        Column("seconds", "all assigned, s", "{:.2f}"),
        Column("given_up", "partitions given up", "{:.0f}"),
        Column("gap_s", "longest time without owner, s", "{:.2f}"),
    ]
    title = f"{CONSUMERS} consumers of {BEFORE} partitions take over {ADDED} new ones"
    return Report(
        "takeover",
        title,
        tables=[Table(title, columns, rows)],
        checks=[Check("consumer protocol: all assigned, s", rows[-1]["seconds"], BAR_S, at_most=True)],
        plots=[Plot(title, "s", [row["protocol"] for row in rows], {"all assigned": [row["seconds"] for row in rows]})],
        notes=[f"Heartbeats of the consumer protocol and metadata refreshes of the classic one: {HEARTBEAT_MS} ms."],
    )


def _measure(config: dict[str, Any], options: Options) -> tuple[float, float, float, float]:
    """Return the seconds of the start and of the takeover, the number given up, and the longest gap in seconds."""
    work_dir = Path(tempfile.mkdtemp(prefix="skylog-takeover-", dir=options.work_dir))
    topic = "takeover"
    try:
        with broker(work_dir, f"--set=group.consumer.heartbeat.interval.ms={HEARTBEAT_MS}") as server:
            admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
            admin.create_topics([NewTopic(topic, BEFORE, 1)])[topic].result(30)
            shared = {
                "bootstrap.servers": server.bootstrap,
                "group.id": topic,
                "enable.auto.commit": False,
                "log_level": 0,
            }
            owners = Owners()
            members = [Member(number, {**shared, **config}, topic, owners) for number in range(CONSUMERS)]
            for member in members:
                member.start()
            try:
                start_s = owners.wait_for(BEFORE)
                owners.given_up, owners.longest_gap_s = 0, 0.0
                admin.create_partitions([NewPartitions(topic, BEFORE + ADDED)])[topic].result(60)
                seconds = owners.wait_for(BEFORE + ADDED)
                return start_s, seconds, float(owners.given_up), owners.longest_gap_s
            finally:
                for member in members:
                    member.stopping.set()
                for member in members:
                    member.join(30)
    finally:
        shutil.rmtree(work_dir)
