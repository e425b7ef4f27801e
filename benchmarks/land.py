"""Rows per second from a topic into the warehouse: `land`, and Spark's JVM connector with delta-spark if available.

Each contender is a process with its own Spark session. They take turns, each with a new table. If delta-spark has no
jar for the installed PySpark, all of them run with the newest one that it has a jar for. If that cannot be installed,
the connector writes Parquet instead. With `--against DIR`, the job of another checkout is a contender too, on tables of
whatever form it has. The rows of the connector get the same columns with the same functions, are not checked to be
complete, and have no offsets.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.report import Check, Column, Options, Report, Table, median
from benchmarks.servers import broker
from skylog import Admin

ROOT = Path(__file__).parents[1]
OVER_CONNECTOR_BAR = 1.5
PARTITIONS = 2
CORES = 2
SMALLEST_BYTES = 10
MAY_1_MS = 1_777_593_600_000


def fill(bootstrap: str, topic: str, count: int, value_bytes: int) -> None:
    """Produce events of the same size, within two hours. The smallest have an id of two characters only."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": count})
    body = b'{"id":"%07d","event":"page.view","user":{"id":"%03d"},"attributes":{"page":"/about"}'
    padding = value_bytes - len(body % (0, 0)) - len(b',"server":""}')
    for number in range(count):
        if value_bytes <= SMALLEST_BYTES:
            value = b'{"id":"%d"}' % (number % 10)
        else:
            value = body % (number, number % 1000) + b',"server":"%s"}' % (b"x" * max(padding, 0))
        at_ms = MAY_1_MS + number * 7_200_000 // count
        producer.produce(topic, value, partition=number % PARTITIONS, timestamp=at_ms)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()


class Lander:
    """A contender."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def land(self, topic: str, warehouse: Path) -> float:
        """Return the seconds until the topic is in a new table, which is deleted afterwards."""
        assert self._process.stdin is not None
        print(topic, warehouse, file=self._process.stdin, flush=True)
        seconds = float(self.answer())
        shutil.rmtree(warehouse)
        return seconds

    def answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args!r} has ended: {self._log.read_text()[-2000:]}")
        return line.strip()


@dataclass
class Contenders:
    """Kind and checkout of each contender by its name, and the interpreter that all of them run with."""

    kinds: dict[str, tuple[str, Path]]
    python: Path = Path(sys.executable)
    spark_version: str = ""
    notes: list[str] = field(default_factory=list)


@contextmanager
def lander(kind: str, bootstrap: str, checkout: Path, python: Path, log: Path) -> Iterator[Lander]:
    path = os.pathsep.join(filter(None, (str(checkout / "src"), str(ROOT), os.environ.get("PYTHONPATH"))))
    command = [str(python), "-m", "benchmarks.lander", kind, bootstrap, str(CORES)]
    variables = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": str(python)}
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=variables
        )
    try:
        found = Lander(process, log)
        assert found.answer() == "ready"
        yield found
    finally:
        process.communicate()


def contenders(options: Options) -> Contenders:
    import pyspark

    from tests.spark.peers.installed import Interpreter, NotInstalledError
    from tests.spark.peers.jars import DELTA_FOR, NoJarsError, connector_jars, delta_jars_of

    found = Contenders({"skylog": ("skylog", ROOT)}, spark_version=".".join(pyspark.__version__.split(".")[:2]))
    if options.against is not None:
        found.kinds["skylog, other checkout"] = ("skylog", options.against.resolve())
    try:
        connector_jars()
        found.kinds["JVM connector, Parquet"] = ("parquet", ROOT)
        if found.spark_version not in DELTA_FOR:
            found.python, found.spark_version = Interpreter(DELTA_FOR[-1]).path, DELTA_FOR[-1]
        delta_jars_of(found.spark_version)
        del found.kinds["JVM connector, Parquet"]
        found.kinds["JVM connector, Delta"] = ("delta", ROOT)
    except (NoJarsError, NotInstalledError) as error:
        found.notes.append(f"not compared with all peers: {error}")
    return found


def run(options: Options) -> Report:
    count = 200_000 if options.quick else 1_000_000
    sizes = (100,) if options.quick else (10, 100, 1000)
    warm_ups = 1 if options.quick else 2
    chosen = contenders(options)
    where = f"Spark {chosen.spark_version}, local[{CORES}]"
    report = Report("land", f"{count:,} events of a topic with {PARTITIONS} partitions into a table, {where}")
    report.notes = chosen.notes
    work_dir = Path(tempfile.mkdtemp(prefix="skylog-land-", dir=options.work_dir))
    rows: list[dict[str, Any]] = []
    try:
        with broker(work_dir / "data", core=None) as server, ExitStack() as stack:
            landers = {
                name: stack.enter_context(
                    lander(kind, server.bootstrap, checkout, chosen.python, work_dir / f"log-{number}")
                )
                for number, (name, (kind, checkout)) in enumerate(chosen.kinds.items())
            }
            for value_bytes in sizes:
                topic = f"events-{value_bytes}"
                Admin(server.bootstrap).create_topic(topic, PARTITIONS, configs={"retention.ms": "-1"})  # old events
                fill(server.bootstrap, topic, count, value_bytes)
                taken = measure(landers, topic, options.rounds, warm_ups, work_dir / "warehouse")
                rows += _rows(value_bytes, count, taken)
    finally:
        shutil.rmtree(work_dir)
    report.tables.append(Table("rows per second; medians", _COLUMNS, rows))
    for row in rows:
        if row["what"] == "JVM connector, Delta":
            report.checks.append(
                Check(f"{row['bytes']} bytes: land over {row['what']}", row["behind"], OVER_CONNECTOR_BAR)
            )
    return report


def measure(
    landers: dict[str, Lander], topic: str, rounds: int, warm_ups: int, warehouse: Path
) -> dict[str, list[float]]:
    """Return the seconds of every round by contender. They take turns; the first rounds warm up and do not count."""
    taken: dict[str, list[float]] = {name: [] for name in landers}
    for _ in range(rounds + warm_ups):
        for name, found in landers.items():
            taken[name].append(found.land(topic, warehouse))
    return {name: seconds[warm_ups:] for name, seconds in taken.items()}


def _rows(value_bytes: int, count: int, taken: dict[str, list[float]]) -> list[dict[str, Any]]:
    seconds = {name: median(each) for name, each in taken.items()}
    return [
        {"what": name, "bytes": value_bytes, "rows_s": count / each, "behind": each / seconds["skylog"]}
        for name, each in seconds.items()
    ]


_COLUMNS = [
    Column("what", "job"),
    Column("bytes", "value bytes", "{:,}"),
    Column("rows_s", "rows/s", "{:,.0f}"),
    Column("behind", "skylog is faster by", "{:.2f}×"),
]
