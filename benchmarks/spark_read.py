"""Rows per second from a topic into Spark: skylog's source, the naive one, and Spark's JVM connector if available.

Ready batches, which are neither fetched nor decoded, show the limit of a source in Python. The sources alternate in one
Spark session, so that compared figures are measured at the same time. Then skylog's source uses one core instead of
two. The connector's jars are those of the tests.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.channel import create_topic
from benchmarks.report import Check, Column, Options, Report, Table, median
from benchmarks.servers import broker

ROOT = Path(__file__).parents[1]
OVER_NAIVE_BAR = 2.0
OVER_CONNECTOR_BAR = 1.5
PARTITIONS = 2
CORES = 2
WARM_UPS = 2
SINKS = ("noop", "parquet")
LIMIT = "ready batches"


def fill(bootstrap: str, topic: str, count: int, value_bytes: int) -> None:
    """Produce JSON-like values of nearly equal size, with keys."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": count})
    for number in range(count):
        value = (b'{"user": %d, "page": "/about"}' % number * (value_bytes // 20 + 1))[: value_bytes - number % 7]
        producer.produce(topic, value, b"k%d" % number, partition=number % PARTITIONS)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()


def session(cores: int = CORES) -> tuple[Any, dict[str, str]]:
    """Yield a Spark session and the formats to compare, by name of the row."""
    from pyspark.sql import SparkSession

    from tests.spark.peers.jars import NoJarsError, connector_jars

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    builder = SparkSession.builder.master(f"local[{cores}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "2g").config("spark.ui.showConsoleProgress", "false")
    formats = {"skylog": "skylog"}
    try:
        builder = builder.config("spark.jars", ",".join(map(str, connector_jars())))
        formats["JVM connector"] = "kafka"
    except NoJarsError as error:
        print(f"without the JVM connector: {error}")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark, formats


def read_all(spark: Any, form: str, bootstrap: str, topic: str, sink: str, target: Path) -> float:
    """Return the seconds from the load of the frame to its last row in the sink."""
    began = time.perf_counter()
    frame = spark.read.format(form).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic).load()
    writer = frame.write.format(sink).mode("overwrite")
    writer.save(str(target)) if sink == "parquet" else writer.save()
    return time.perf_counter() - began


def run(options: Options) -> Report:
    from benchmarks.naive_source import NaiveSource
    from benchmarks.ready_source import ReadySource

    count = 200_000 if options.quick else 1_000_000
    sizes = (100,) if options.quick else (10, 100, 1000)
    report = Report("spark_read", f"{count:,} rows from a topic of {PARTITIONS} partitions into Spark, local[{CORES}]")
    work_dir = Path(tempfile.mkdtemp(prefix="skylog-spark-", dir=options.work_dir))
    spark, formats = session()
    formats |= {"naive": "naive", LIMIT: "ready"}
    for source in (NaiveSource, ReadySource):
        spark.dataSource.register(source)
    rows: list[dict[str, Any]] = []
    try:
        with broker(work_dir / "data", core=None) as server:
            for value_bytes in sizes:
                topic = f"values-{value_bytes}"
                create_topic(server.address, topic, PARTITIONS)
                fill(server.bootstrap, topic, count, value_bytes)
                for sink in SINKS:
                    taken = measure(spark, formats, options.rounds, server.bootstrap, topic, sink, work_dir / "rows")
                    rows += _rows(value_bytes, sink, count, taken)
            spark.stop()
            spark, _ = session(1)
            only = {"skylog": "skylog"}
            for sink in SINKS:
                taken = measure(spark, only, options.rounds, server.bootstrap, "values-100", sink, work_dir / "rows")
                report.tables.append(_scaling(sink, count / median(taken["skylog"]), rows))
    finally:
        spark.stop()
        shutil.rmtree(work_dir)
    report.tables.insert(0, Table("rows per second; medians", _COLUMNS, rows))
    for row in rows:
        if row["what"] not in ("skylog", LIMIT):
            bar = OVER_NAIVE_BAR if row["what"] == "naive" else OVER_CONNECTOR_BAR
            report.checks.append(
                Check(f"{row['bytes']} bytes, {row['sink']}: skylog over {row['what']}", row["behind"], bar)
            )
    return report


def measure(
    spark: Any, formats: dict[str, str], rounds: int, bootstrap: str, topic: str, sink: str, target: Path
) -> dict[str, list[float]]:
    """Return the seconds of every round by source. The sources alternate; the first rounds warm up and do not count."""
    taken: dict[str, list[float]] = {name: [] for name in formats}
    for _ in range(rounds + WARM_UPS):
        for name, form in formats.items():
            taken[name].append(read_all(spark, form, bootstrap, topic, sink, target))
    return {name: seconds[WARM_UPS:] for name, seconds in taken.items()}


def _scaling(sink: str, one_core: float, rows: list[dict[str, Any]]) -> Table:
    """Measure skylog's source into this sink on one core and on two."""
    (both,) = (row["rows_s"] for row in rows if (row["what"], row["bytes"], row["sink"]) == ("skylog", 100, sink))
    found = [{"cores": 1, "rows_s": one_core, "by": 1.0}, {"cores": CORES, "rows_s": both, "by": both / one_core}]
    return Table(f"skylog by cores, 100 bytes, {sink}", _SCALING_COLUMNS, found)


def _rows(value_bytes: int, sink: str, count: int, taken: dict[str, list[float]]) -> list[dict[str, Any]]:
    ours = median(taken["skylog"])
    return [
        {
            "bytes": value_bytes,
            "sink": sink,
            "what": name,
            "rows_s": count / median(seconds),
            "behind": median(seconds) / ours,
        }
        for name, seconds in taken.items()
    ]


_COLUMNS = [
    Column("what", "source"),
    Column("bytes", "value bytes", "{:,}"),
    Column("sink", "sink"),
    Column("rows_s", "rows/s", "{:,.0f}"),
    Column("behind", "skylog is faster by", "{:.2f}×"),
]
_SCALING_COLUMNS = [
    Column("cores", "cores"),
    Column("rows_s", "rows/s", "{:,.0f}"),
    Column("by", "of one core", "{:.2f}×"),
]
