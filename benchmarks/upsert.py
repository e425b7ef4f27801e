"""Seconds to upsert 1 % of the rows of a table with a key, and to rewrite the table instead.

Both take turns on the same table. The changed keys are a range, as with recent orders; then they are spread over all
keys, where every file has some of them and the whole table has to be rewritten in any case. That is measured once: it
has no bar, and takes most of the time.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.report import Check, Column, Options, Report, Table, median

OVER_REWRITE_BAR = 5.0
CORES = 2
SHARE = 100
WARM_UPS = 1
ROW = ("sha1(string(id + {salt})) AS name", "date_add(DATE'2026-01-01', int(id % 365)) AS day", "id * 1.5 AS total")


def run(options: Options) -> Report:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

    from skylog.pipeline import Table as DeltaTable
    from skylog.spark.session import start_session

    count = 500_000 if options.quick else 10_000_000
    report = Report("upsert", f"{count // SHARE:,} of {count:,} rows of a Delta table, local[{CORES}]")
    work_dir = Path(tempfile.mkdtemp(prefix="skylog-upsert-", dir=options.work_dir))
    spark = start_session("upsert", f"local[{CORES}]", {"spark.driver.memory": "4g"})
    table = DeltaTable(work_dir / "table", key=("id",))
    done = 0

    def rows(ids: Any, salt: int) -> Any:
        return ids.selectExpr("id", *(each.format(salt=salt) for each in ROW))

    def upsert(changes: Any) -> float:
        nonlocal done
        opened = table.open()
        began = time.perf_counter()
        opened.write(changes, _offsets(done), _offsets(done + 1))
        done += 1
        return time.perf_counter() - began

    def rewrite() -> float:
        nonlocal done
        opened = table.open()
        began = time.perf_counter()
        opened.replace(table.read(spark), _offsets(done), _offsets(done + 1))
        done += 1
        return time.perf_counter() - began

    ids = spark.range(0, count, 1, CORES)
    first = count // 2
    chosen = {
        "a range of keys": lambda: spark.range(first, first + count // SHARE),
        "keys anywhere": lambda: ids.where(F.expr(f"id % {SHARE} = 7")),
    }
    found: list[dict[str, Any]] = []
    try:
        created = upsert(rows(ids, 0))
        for what, keys in chosen.items():
            taken: dict[str, list[float]] = {"upsert": [], "rewrite": []}
            is_first = not found
            for _ in range(options.rounds + WARM_UPS if is_first else 1):
                taken["upsert"].append(upsert(rows(keys(), done)))
                taken["rewrite"].append(rewrite())
            seconds = {name: median(each[WARM_UPS if is_first else 0 :]) for name, each in taken.items()}
            found.append({"what": what, **seconds, "by": seconds["rewrite"] / seconds["upsert"]})
        files = len(table.log().files())
        assert table.read(spark).count() == count
    finally:
        spark.stop()
        shutil.rmtree(work_dir)
    report.tables.append(Table("seconds; medians", _COLUMNS, found))
    if options.quick:
        report.notes.append("no bar: a table of this size has three files, and one of them is a third of it")
    else:
        report.checks.append(Check("a range of keys: upsert over rewrite", found[0]["by"], OVER_REWRITE_BAR))
    report.notes.append(f"the table has {files} files; it was created in {created:.1f} s")
    return report


def _offsets(end: int) -> dict[Any, int]:
    from skylog.model import TopicPartition

    return {TopicPartition("changes", 0): end} if end else {}


_COLUMNS = [
    Column("what", "changed rows"),
    Column("upsert", "upsert s", "{:.2f}"),
    Column("rewrite", "rewrite s", "{:.2f}"),
    Column("by", "faster by", "{:.1f}×"),
]
