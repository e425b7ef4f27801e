"""Rows per second from Spark into a topic: skylog's sink, and Spark's JVM connector if available.

The sinks alternate in one Spark session, each with a new topic. Then skylog's sink uses one core instead of two. Rows
are generated during the write, at the same cost for both. When the job ends, skylog's rows are in the log exactly once,
the connector's at least once.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.channel import create_topic
from benchmarks.report import Check, Column, Options, Report, Table, median
from benchmarks.servers import Server, broker
from benchmarks.spark_read import CORES, PARTITIONS, WARM_UPS, session

OVER_CONNECTOR_BAR = 1.0
ROWS_BYTES = 200_000_000


def write_all(spark: Any, form: str, server: Server, count: int, value_bytes: int, staging: Path) -> float:
    """Return the seconds until all rows are in a new topic, which is deleted afterwards."""
    from skylog.client import Admin

    topic = f"rows-{time.monotonic_ns()}"
    create_topic(server.address, topic, PARTITIONS)
    value = f"rpad(concat('{{\"user\": ', id, ', \"page\": \"/about\"}}'), {value_bytes}, 'x') value"
    rows = spark.range(0, count, 1, CORES).selectExpr("cast(id as string) key", value)
    writer = rows.write.format(form).option("kafka.bootstrap.servers", server.bootstrap).option("topic", topic)
    if form == "skylog":
        writer = writer.option("stagingLocation", str(staging))
    began = time.perf_counter()
    writer.mode("append").save()
    seconds = time.perf_counter() - began
    Admin(server.bootstrap).delete_topics([topic])
    return seconds


def measure(
    spark: Any, formats: dict[str, str], rounds: int, server: Server, count: int, value_bytes: int, staging: Path
) -> dict[str, float]:
    """Return rows per second by sink: medians of rounds in which they alternate."""
    taken: dict[str, list[float]] = {name: [] for name in formats}
    for _ in range(rounds + WARM_UPS):
        for name, form in formats.items():
            taken[name].append(write_all(spark, form, server, count, value_bytes, staging))
    return {name: count / median(seconds[WARM_UPS:]) for name, seconds in taken.items()}


def run(options: Options) -> Report:
    sizes = (100,) if options.quick else (10, 100, 1000)
    report = Report("spark_write", f"rows from Spark into a topic of {PARTITIONS} partitions, local[{CORES}]")
    work_dir = Path(tempfile.mkdtemp(prefix="skylog-spark-", dir=options.work_dir))
    spark, formats = session()
    rows: list[dict[str, Any]] = []
    try:
        with broker(work_dir / "data", core=None) as server:
            for cores in (CORES, 1):
                for value_bytes in sizes if cores == CORES else (100,):
                    count = min(1_000_000, ROWS_BYTES // value_bytes) // (5 if options.quick else 1)
                    names = formats if cores == CORES else {"skylog": "skylog"}
                    rates = measure(spark, names, options.rounds, server, count, value_bytes, work_dir / "staging")
                    rows += [_row(name, cores, value_bytes, count, rates) for name in rates]
                spark.stop()
                if cores == CORES:
                    spark, _ = session(1)
    finally:
        spark.stop()
        shutil.rmtree(work_dir)
    report.tables.append(Table("rows per second; medians", _COLUMNS, rows))
    report.checks += [
        Check(f"{row['bytes']} bytes: skylog over {row['what']}", row["behind"], OVER_CONNECTOR_BAR)
        for row in rows
        if row["what"] != "skylog"
    ]
    return report


def _row(name: str, cores: int, value_bytes: int, count: int, rates: dict[str, float]) -> dict[str, Any]:
    rate = rates[name]
    behind = rates["skylog"] / rate
    return {"what": name, "cores": cores, "bytes": value_bytes, "count": count, "rows_s": rate, "behind": behind}


_COLUMNS = [
    Column("what", "sink"),
    Column("cores", "cores"),
    Column("bytes", "value bytes", "{:,}"),
    Column("count", "rows", "{:,}"),
    Column("rows_s", "rows/s", "{:,.0f}"),
    Column("behind", "skylog is faster by", "{:.2f}×"),
]
