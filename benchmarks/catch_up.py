"""How fast a follower with an empty disk copies a log, beside a bare copy of the same bytes over a socket.

The bare copy is two processes: one sends the leader's segments with `sendfile`, the other receives them into a buffer
and writes them to files. It checks nothing. The follower fetches, checks every batch, and writes; the leader also
checks each batch once, since it has been restarted. Both write to the page cache and share the machine.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from multiprocessing import Process
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.clusters import SkylogCluster, leader_of, wait_until
from benchmarks.report import Check, Column, Options, Report, Table, median

TOPIC = "bench"
VALUE_BYTES = 1000
BATCH_MESSAGES = 500
BAR = 0.5
BUFFER_BYTES = 1 << 20


def run(options: Options) -> Report:
    work_dir = Path(tempfile.mkdtemp(prefix="skylog-catch-up-", dir=options.work_dir))
    size_bytes = 200_000_000 if options.quick else 1_000_000_000
    rounds = 1 if options.quick else min(options.rounds, 3)
    try:
        with SkylogCluster(work_dir) as cluster:
            _fill(cluster, size_bytes)
            leader = leader_of(cluster, TOPIC)
            follower = next(each for each in cluster.ports if each != leader)
            taken = [_round(cluster, leader, follower) for _ in range(rounds)]
    finally:
        shutil.rmtree(work_dir, ignore_errors=True)
    rows: list[dict[str, Any]] = [
        {"what": what, "rate": median([each[what] for each in taken]) / 1e6} for what in ("bare copy", "follower")
    ]
    ratio = median([each["follower"] / each["bare copy"] for each in taken])
    report = Report("catch_up", f"a follower copies {size_bytes / 1e6:,.0f} MB")
    report.tables.append(Table("copying", [Column("what", ""), Column("rate", "MB/s", "{:,.0f}")], rows))
    report.checks.append(Check("follower beside a bare copy", ratio, BAR))
    return report


def _fill(cluster: SkylogCluster, size_bytes: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(30)
    settings = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 50}
    producer = Producer(settings | {"batch.num.messages": BATCH_MESSAGES, "delivery.report.only.error": True})
    value = os.urandom(VALUE_BYTES)
    for _ in range(size_bytes // VALUE_BYTES):
        while len(producer) > 50_000:
            producer.poll(0.01)
        producer.produce(TOPIC, value)
    if producer.flush(120):
        raise RuntimeError("the topic could not be filled")


def _round(cluster: SkylogCluster, leader: int, follower: int) -> dict[str, float]:
    source = cluster.directory / f"broker-{leader}" / f"{TOPIC}-0"
    return {"bare copy": _bare_copy(source, cluster.directory / "copy"), "follower": _follow(cluster, source, follower)}


def _follow(cluster: SkylogCluster, source: Path, follower: int) -> float:
    """Start a follower without its data. Return its bytes per second, from its first byte to its last."""
    data_dir = cluster.directory / f"broker-{follower}"
    cluster.kill(follower)
    shutil.rmtree(data_dir)
    wanted = _size(source)
    folder = data_dir / f"{TOPIC}-0"
    cluster.start(follower)
    while not _size(folder):
        time.sleep(0.001)
    began, first = time.perf_counter(), _size(folder)
    while _size(folder) < wanted:
        time.sleep(0.002)
    elapsed = time.perf_counter() - began
    wait_until(lambda: _is_in_sync(cluster, follower), 60, "the follower is in sync")
    return (wanted - first) / elapsed


def _is_in_sync(cluster: SkylogCluster, node_id: int) -> bool:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    return node_id in admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions[0].isrs


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.log"))


def _bare_copy(source: Path, target: Path) -> float:
    target.mkdir(exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = Process(target=_send, args=(server.getsockname(), sorted(source.glob("*.log"))))
        sender.start()
        connection, _ = server.accept()
        began = time.perf_counter()
        received = _receive(connection, target / "copy.log")
        elapsed = time.perf_counter() - began
        sender.join()
    shutil.rmtree(target)
    return received / elapsed


def _send(address: tuple[str, int], paths: list[Path]) -> None:
    with socket.create_connection(address) as connection:
        for path in paths:
            with path.open("rb") as file:
                connection.sendfile(file)


def _receive(connection: socket.socket, path: Path) -> int:
    buffer = memoryview(bytearray(BUFFER_BYTES))
    received = 0
    with connection, path.open("wb", buffering=0) as file:
        while count := connection.recv_into(buffer):
            file.write(buffer[:count])
            received += count
    return received
