"""Rows per second from a topic into Spark: skylog's source, the naive one, and Spark's JVM connector if it is there.

The sources take turns in one Spark session (`local[2]`), so what a figure is compared with was measured beside it. The
connector's jars are taken from the directory that SKYLOG_KAFKA_CONNECTOR names (spark-sql-kafka, its token provider,
kafka-clients and commons-pool2).
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
SINKS = ("noop", "parquet")


def fill(bootstrap: str, topic: str, count: int, value_bytes: int) -> None:
    """JSON-like values of nearly equal size, with keys."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": count})
    for number in range(count):
        value = (b'{"user": %d, "page": "/about"}' % number * (value_bytes // 20 + 1))[: value_bytes - number % 7]
        producer.produce(topic, value, b"k%d" % number, partition=number % PARTITIONS)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()


def session() -> tuple[Any, dict[str, str]]:
    """A Spark session, and the formats that it can read by the names of the rows."""
    from pyspark.sql import SparkSession

    from benchmarks.naive_source import NaiveSource

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "2g")
    formats = {"skylog": "skylog", "naive": "naive"}
    if directory := os.environ.get("SKYLOG_KAFKA_CONNECTOR"):
        builder = builder.config("spark.jars", ",".join(map(str, sorted(Path(directory).glob("*.jar")))))
        formats["JVM connector"] = "kafka"
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(NaiveSource)
    return spark, formats


def read_all(spark: Any, form: str, bootstrap: str, topic: str, sink: str, target: Path) -> float:
    """Seconds from the load of the frame to its last row in the sink."""
    began = time.perf_counter()
    frame = spark.read.format(form).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic).load()
    writer = frame.write.format(sink).mode("overwrite")
    writer.save(str(target)) if sink == "parquet" else writer.save()
    return time.perf_counter() - began


def run(options: Options) -> Report:
    count = 200_000 if options.quick else 1_000_000
    sizes = (100,) if options.quick else (10, 100, 1000)
    report = Report("spark_read", f"{count:,} rows from a topic of {PARTITIONS} partitions into Spark, local[2]")
    work_dir = Path(tempfile.mkdtemp(prefix="skylog-spark-", dir=options.work_dir))
    spark, formats = session()
    rows: list[dict[str, Any]] = []
    try:
        with broker(work_dir / "data", core=None) as server:
            for value_bytes in sizes:
                topic = f"values-{value_bytes}"
                create_topic(server.address, topic, PARTITIONS)
                fill(server.bootstrap, topic, count, value_bytes)
                for sink in SINKS:
                    taken: dict[str, list[float]] = {name: [] for name in formats}
                    for number in range(options.rounds + 2):  # the first two warm Spark up
                        for name, form in formats.items():
                            seconds = read_all(spark, form, server.bootstrap, topic, sink, work_dir / "rows")
                            if number > 1:
                                taken[name].append(seconds)
                    rows += _rows(value_bytes, sink, count, taken)
    finally:
        spark.stop()
        shutil.rmtree(work_dir)
    report.tables.append(Table("rows per second; medians", _COLUMNS, rows))
    for row in rows:
        if row["what"] != "skylog":
            bar = OVER_NAIVE_BAR if row["what"] == "naive" else OVER_CONNECTOR_BAR
            report.checks.append(
                Check(f"{row['bytes']} bytes, {row['sink']}: skylog over {row['what']}", row["behind"], bar)
            )
    return report


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
