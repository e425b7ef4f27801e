"""1,000 partitions with three replicas on three brokers: how soon they are created, fail over and catch up.

The cluster runs on ZooKeeper with the default session timeout. A broker is killed with SIGKILL and started again. All
brokers and clients share the machine.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.clusters import BROKERS, SkylogCluster
from benchmarks.report import Check, Column, Options, Report, Table, median

PARTITIONS = 1000
TOPICS = {"one topic": 1, "100 topics": 100}
VICTIM = 1
IDLE_S = 10.0
PATIENCE_S = 120.0
LEADERS_BAR_S = 10.0
IN_SYNC_BAR_S = 30.0


def run(options: Options) -> Report:
    partitions = PARTITIONS // 5 if options.quick else PARTITIONS
    rounds = 1 if options.quick else min(options.rounds, 3)
    rows = [
        _median(name, [_measure(options, count, partitions) for _ in range(rounds)]) for name, count in TOPICS.items()
    ]
    return _report(rows, partitions)


def _median(name: str, taken: list[dict[str, float]]) -> dict[str, Any]:
    return {"layout": name} | {key: median([each[key] for each in taken]) for key in taken[0]}


def _measure(options: Options, topics: int, partitions: int) -> dict[str, float]:
    work_dir = Path(tempfile.mkdtemp(prefix="skylog-partitions-", dir=options.work_dir))
    try:
        with SkylogCluster(work_dir) as cluster:
            names = [f"topic-{number:03}" for number in range(topics)]
            return _lives(cluster, _Clients(cluster.bootstrap, names, partitions // topics))
    finally:
        shutil.rmtree(work_dir, ignore_errors=True)


def _lives(cluster: SkylogCluster, clients: _Clients) -> dict[str, float]:
    """Create the partitions, let the brokers idle, kill one of them, and start it again."""
    began = time.perf_counter()
    clients.create()
    found = {"created_s": _seconds(began, clients.are_in_sync)}
    clients.produce_to_all()
    before = cluster.cpu_seconds()
    time.sleep(IDLE_S)
    found |= {"idle_cores": (cluster.cpu_seconds() - before) / IDLE_S, "rss_mb": cluster.rss_bytes() / 1e6}
    began = time.perf_counter()
    cluster.kill(VICTIM)
    clients.begin_to_produce_to_all()
    found["leaders_s"] = _seconds(began, clients.have_other_leaders)
    clients.finish_producing()
    found["produced_s"] = clients.last_acknowledged - began
    began = time.perf_counter()
    cluster.start(VICTIM)
    found["in_sync_s"] = _seconds(began, clients.are_in_sync)
    return found


def _seconds(began: float, condition: Callable[[], bool]) -> float:
    while not condition():
        if time.perf_counter() - began > PATIENCE_S:
            raise RuntimeError(f"{condition.__name__}: not within {PATIENCE_S:g} s")
        time.sleep(0.1)
    return time.perf_counter() - began


class _Clients:
    """An admin client and a producer with acks=all, of all topics."""

    def __init__(self, bootstrap: str, topics: list[str], partitions_each: int) -> None:
        self._topics = topics
        self._partitions = range(partitions_each)
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        )
        self._failures: list[object] = []
        self.last_acknowledged = 0.0

    def create(self) -> None:
        wanted = [NewTopic(topic, len(self._partitions), BROKERS) for topic in self._topics]
        for future in self._admin.create_topics(wanted, operation_timeout=60, request_timeout=60).values():
            future.result(PATIENCE_S)

    def _states(self) -> list[Any]:
        found = self._admin.list_topics(timeout=20).topics
        return [each for topic in self._topics if topic in found for each in found[topic].partitions.values()]

    def are_in_sync(self) -> bool:
        states = self._states()
        expected = len(self._topics) * len(self._partitions)
        return len(states) == expected and all(len(each.isrs) == BROKERS for each in states)

    def have_other_leaders(self) -> bool:
        return all(each.leader not in (-1, VICTIM) for each in self._states())

    def produce_to_all(self) -> None:
        self.begin_to_produce_to_all()
        self.finish_producing()

    def begin_to_produce_to_all(self) -> None:
        """Send one message to each partition. They are acknowledged when all have leaders."""
        for topic in self._topics:
            for partition in self._partitions:
                self._producer.produce(topic, b"x" * 100, partition=partition, on_delivery=self._delivered)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._failures.append(error)
        self.last_acknowledged = time.perf_counter()

    def finish_producing(self) -> None:
        if self._producer.flush(PATIENCE_S) or self._failures:
            raise RuntimeError(f"not everything is acknowledged: {self._failures[:3]}")


def _report(rows: list[dict[str, Any]], partitions: int) -> Report:
    report = Report("partitions", f"{partitions:,} partitions with three replicas on three brokers")
    columns = (
        Column("layout", "layout"),
        Column("created_s", "created and in sync s", "{:.1f}"),
        Column("idle_cores", "idle CPU, cores", "{:.3f}"),
        Column("rss_mb", "memory MB", "{:.0f}"),
        Column("leaders_s", "killed: all have leaders s", "{:.1f}"),
        Column("produced_s", "killed: all acknowledge s", "{:.1f}"),
        Column("in_sync_s", "started: all in sync s", "{:.1f}"),
    )
    report.tables.append(Table("", columns, rows))
    for row in rows:
        name = row["layout"]
        report.checks.append(
            Check(f"{name}: all acknowledge after a kill, s", row["produced_s"], LEADERS_BAR_S, at_most=True)
        )
        report.checks.append(
            Check(f"{name}: all in sync after a start, s", row["in_sync_s"], IN_SYNC_BAR_S, at_most=True)
        )
    report.notes.append("CPU and memory are those of the three brokers together, without ZooKeeper.")
    report.notes.append("The session timeout of 6 s is part of the time until all have leaders.")
    return report
