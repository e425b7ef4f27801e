"""CPU time per row from a topic into Spark, by process: Spark's JVM, its Python workers and the broker.

Shows where the time of `spark_read` goes, and what the source can influence: only the Python part is skylog's. The row
of ready batches is what Spark needs for a source that does nothing. Includes the fixed cost of a query. CPU time varies
less with other load than rows per second do.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.channel import create_topic
from benchmarks.report import Column, Options, Report, Table, median
from benchmarks.servers import broker
from benchmarks.spark_read import CORES, LIMIT, PARTITIONS, WARM_UPS, fill, read_all, session

PARTS = ("java", "python", "broker")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def run(options: Options) -> Report:
    from benchmarks.ready_source import ReadySource

    count = 200_000 if options.quick else 1_000_000
    report = Report("spark_cpu", f"CPU of {count:,} rows of 1,000 bytes into Spark, noop, local[{CORES}]")
    work_dir = Path(tempfile.mkdtemp(prefix="skylog-spark-", dir=options.work_dir))
    spark, formats = session()
    formats[LIMIT] = "ready"
    spark.dataSource.register(ReadySource)
    try:
        with broker(work_dir / "data", core=None) as server:
            create_topic(server.address, "values", PARTITIONS)
            fill(server.bootstrap, "values", count, 1000)

            def read(form: str) -> None:
                read_all(spark, form, server.bootstrap, "values", "noop", work_dir / "rows")

            taken = {name: _measure(form, read, server.pid, options.rounds) for name, form in formats.items()}
    finally:
        spark.stop()
        shutil.rmtree(work_dir)
    rows = [
        {"what": name, **{part: found[part] * 1e6 / count for part in PARTS}, "all": sum(found.values()) * 1e6 / count}
        for name, found in taken.items()
    ]
    report.tables.append(Table("CPU µs per row; medians", _COLUMNS, rows))
    return report


def _measure(form: str, read: Callable[[str], None], broker_pid: int, rounds: int) -> dict[str, float]:
    """Return the CPU seconds of one read by part."""
    for _ in range(WARM_UPS):
        read(form)
    found: list[dict[str, float]] = []
    for _ in range(rounds):
        before = _cpu_s(broker_pid)
        read(form)
        after = _cpu_s(broker_pid)
        found.append({part: after[part] - before[part] for part in PARTS})
    return {part: median([each[part] for each in found]) for part in PARTS}


def _cpu_s(broker_pid: int) -> dict[str, float]:
    """Return the CPU seconds of all processes below this one so far, with those that have ended, by part."""
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    commands: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields: Any = (path / "stat").read_text().rpartition(")")[2].split()
            commands[int(path.name)] = (path / "cmdline").read_text().partition("\0")[0]
        except OSError:
            continue
        parents[int(path.name)] = int(fields[1])
        seconds[int(path.name)] = sum(map(int, fields[11:15])) / _TICKS_PER_SECOND
    found = dict.fromkeys(PARTS, 0.0)
    for pid, name in commands.items():
        above = pid
        while above in parents and above not in (broker_pid, os.getpid()):
            above = parents[above]
        if above == broker_pid:
            found["broker"] += seconds[pid]
        elif above == os.getpid() and pid != above:
            found["java" if "java" in name else "python"] += seconds[pid]
    return found


_COLUMNS = [
    Column("what", "source"),
    Column("java", "Spark's JVM", "{:.2f}"),
    Column("python", "Python workers", "{:.2f}"),
    Column("broker", "broker", "{:.2f}"),
    Column("all", "together", "{:.2f}"),
]
