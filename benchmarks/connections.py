"""10,000 connections and 4,000 of them with idempotent producers, on three brokers: is any dropped, what does one cost?

The cluster runs on ZooKeeper. Each producer has a producer id of its own and sends batches of one message with
acks=all to a partition with three replicas, one after the other. The other connections are idle, and ask for something
at the end. Brokers and clients share the machine.
"""

from __future__ import annotations

import asyncio
import resource
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from benchmarks.clusters import SkylogCluster, create_topic, leader_of
from benchmarks.report import Check, Column, Options, Report, Table
from skylog.net.peer import Peer, PeerError
from skylog.protocol.init_producer_id import InitProducerIdRequest
from skylog.protocol.metadata import MetadataRequest
from skylog.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from skylog.records import Record, build_batch

CONNECTIONS, PRODUCERS, ROUNDS = 10_000, 4_000, 5
TOPIC, PARTITIONS = "many", 12
AT_ONCE = 200  # connections that are opened at a time
SPARE_FILES = 200
TIMEOUT_S = 120.0
VALUE = b"x" * 200

T = TypeVar("T")


class _Producer(NamedTuple):
    peer: Peer
    partition: int
    producer_id: int
    producer_epoch: int


def run(options: Options) -> Report:
    share = 10 if options.quick else 1
    connections, producers = CONNECTIONS // share, PRODUCERS // share
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < connections + SPARE_FILES:
        raise RuntimeError(f"{connections} connections need as many open files, the hard limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, connections + SPARE_FILES), hard))
    work_dir = Path(tempfile.mkdtemp(prefix="skylog-connections-", dir=options.work_dir))
    try:
        with SkylogCluster(work_dir) as cluster:
            create_topic(cluster, TOPIC, PARTITIONS)
            found = asyncio.run(_measure(cluster, connections - producers, producers))
    finally:
        shutil.rmtree(work_dir, ignore_errors=True)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return _report(found, connections, producers)


async def _measure(cluster: SkylogCluster, idle_count: int, producer_count: int) -> dict[str, Any]:
    ports = list(cluster.ports.values())
    leaders = [cluster.ports[leader_of(cluster, TOPIC, partition)] for partition in range(PARTITIONS)]
    before = cluster.rss_bytes()
    began = time.perf_counter()
    idle = await _each(range(idle_count), lambda number: _connect(ports[number % len(ports)]))
    with_idle = cluster.rss_bytes()
    producers = await _each(range(producer_count), lambda number: _open_producer(leaders, number % PARTITIONS))
    connected_s = time.perf_counter() - began
    cpu_before, began = cluster.cpu_seconds(), time.perf_counter()
    latencies: list[float] = []
    failed = 0
    for sequence in range(ROUNDS):
        for outcome in await asyncio.gather(*(_produce(each, sequence) for each in producers)):
            if outcome is None:
                failed += 1
            else:
                latencies.append(outcome)
    seconds = time.perf_counter() - began
    cpu = cluster.cpu_seconds() - cpu_before
    with_producers = cluster.rss_bytes()
    answered = await _each(idle, _is_answered)
    dropped = answered.count(False) + sum(not each.peer.is_open for each in producers)
    for peer in [*idle, *(each.peer for each in producers)]:
        peer.close()
    latencies.sort()
    return {
        "connected_s": connected_s,
        "dropped": dropped,
        "failed": failed,
        "acknowledged": len(latencies),
        "rate": len(latencies) / seconds,
        "cpu_us": cpu / max(len(latencies), 1) * 1e6,
        "p50_ms": latencies[len(latencies) // 2] * 1e3,
        "p99_ms": latencies[len(latencies) * 99 // 100] * 1e3,
        "idle_kb": (with_idle - before) / idle_count / 1e3,
        "producer_kb": (with_producers - with_idle) / producer_count / 1e3,
        "rss_mb": with_producers / 1e6,
    }


async def _each(items: Sequence[Any], work: Callable[[Any], Awaitable[T]]) -> list[T]:
    """Do something for each item, for some of them at a time."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def limited(item: Any) -> T:
        async with limit:
            return await work(item)

    return list(await asyncio.gather(*map(limited, items)))


async def _connect(port: int) -> Peer:
    return await Peer.connect("127.0.0.1", port, client_id="many", timeout_s=TIMEOUT_S)


async def _open_producer(leaders: Sequence[int], partition: int) -> _Producer:
    peer = await _connect(leaders[partition])
    answer: Any = await peer.ask(InitProducerIdRequest(transaction_timeout_ms=0))
    if answer.error_code:
        raise RuntimeError(f"a producer got the error {answer.error_code} instead of its id")
    return _Producer(peer, partition, answer.producer_id, answer.producer_epoch)


async def _produce(producer: _Producer, sequence: int) -> float | None:
    """Return the seconds until the acknowledgement, or None after an error."""
    batch = build_batch(
        [Record(VALUE, None, int(time.time() * 1000))],
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
    )
    row = PartitionProduceData(index=producer.partition, records=bytes(batch))
    topic = TopicProduceData(name=TOPIC, partition_data=[row])
    began = time.perf_counter()
    try:
        answer: Any = await producer.peer.ask(
            ProduceRequest(acks=-1, timeout_ms=int(TIMEOUT_S * 1000), topic_data=[topic])
        )
    except PeerError:
        return None
    if answer.responses[0].partition_responses[0].error_code:
        return None
    return time.perf_counter() - began


async def _is_answered(peer: Peer) -> bool:
    try:
        await peer.ask(MetadataRequest(topics=[]))
    except PeerError:
        return False
    return True


def _report(found: dict[str, Any], connections: int, producers: int) -> Report:
    report = Report("connections", f"{connections:,} connections, {producers:,} of them producers, on three brokers")
    columns = (
        Column("connected_s", "all connected s", "{:.1f}"),
        Column("dropped", "dropped", "{:d}"),
        Column("failed", "failed", "{:d}"),
        Column("acknowledged", "acknowledged", "{:,d}"),
        Column("rate", "messages/s", "{:,.0f}"),
        Column("cpu_us", "CPU µs each", "{:.0f}"),
        Column("p50_ms", "p50 ms", "{:.0f}"),
        Column("p99_ms", "p99 ms", "{:.0f}"),
        Column("idle_kb", "kB per idle connection", "{:.1f}"),
        Column("producer_kb", "kB per producer", "{:.1f}"),
        Column("rss_mb", "memory of all brokers MB", "{:.0f}"),
    )
    report.tables.append(Table("", columns, [found]))
    report.checks.append(Check("connections dropped", found["dropped"], 0, at_most=True))
    report.checks.append(Check("messages not acknowledged", found["failed"], 0, at_most=True))
    report.notes.append(
        "All producers send at once and wait for each other, so a latency includes a queue of all of them."
    )
    return report
