"""Three brokers of this checkout beside three of another: `python -m benchmarks compare_clusters --against DIR`.

Both clusters run at the same time, and confluent-kafka producers drive them in short turns, one cluster right after the
other. The figure is the CPU time of the three brokers for a message, with three replicas and acks=all. The median of
the ratios of such pairs counts, since neighbours on the machine disturb both turns of a pair alike.
"""

from __future__ import annotations

import compileall
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.clusters import SkylogCluster, create_topic
from benchmarks.replication import BATCHES, MESSAGES, PARTITIONS, latency, produce_batches
from benchmarks.report import Column, Options, Report, Table, median

TURNS = 8


def run(options: Options) -> Report:
    if options.against is None:
        raise SystemExit("compare_clusters needs --against DIR: the other checkout, for example a git worktree")
    sources = (options.against / "src", Path(__file__).parents[1] / "src")
    work_dir = Path(tempfile.mkdtemp(prefix="skylog-compare-", dir=options.work_dir))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, work_dir, ignore_errors=True)
        clusters = []
        for name, source in zip("ab", sources, strict=True):
            compileall.compile_dir(source, quiet=2)
            (work_dir / name).mkdir()
            cluster = stack.enter_context(SkylogCluster(work_dir / name, source=source))
            create_topic(cluster, "bench", PARTITIONS)
            create_topic(cluster, "paced", 1)
            clusters.append(cluster)
        turns = 3 if options.quick else TURNS
        rows = [_row(clusters, batch, turns) for batch in BATCHES]
        return _report(rows, [latency(cluster, options.quick) for cluster in clusters])


def _row(clusters: list[SkylogCluster], batch: int, turns: int) -> dict[str, Any]:
    taken: list[tuple[dict[str, float], dict[str, float]]] = []
    for turn in range(turns + 1):
        before, after = clusters if turn % 2 else clusters[::-1]
        pair = [produce_batches(each, batch, MESSAGES[batch] // 4) for each in (before, after)]
        if turn:  # the first is a warm-up
            taken.append((pair[0], pair[1]) if turn % 2 else (pair[1], pair[0]))
    return {
        "batch": batch,
        "cpu_before": median([before["cpu_us"] for before, _ in taken]),
        "cpu_after": median([after["cpu_us"] for _, after in taken]),
        "cpu_ratio": median([after["cpu_us"] / before["cpu_us"] for before, after in taken]),
        "rate_ratio": median([after["rate"] / before["rate"] for before, after in taken]),
    }


def _report(rows: list[dict[str, Any]], ages: list[dict[str, float]]) -> Report:
    report = Report("compare_clusters", "three brokers of this checkout (after) beside three of another (before)")
    columns = (
        Column("batch", "messages per batch"),
        Column("cpu_before", "CPU µs/message before", "{:.2f}"),
        Column("cpu_after", "after", "{:.2f}"),
        Column("cpu_ratio", "after/before", "{:.3f}"),
        Column("rate_ratio", "messages/s after/before", "{:.3f}"),
    )
    report.tables.append(Table("three replicas, acks=all, 200 bytes a message", columns, rows))
    ages_of = (Column("which", ""), Column("p50_ms", "p50 ms", "{:.2f}"), Column("p99_ms", "p99 ms", "{:.2f}"))
    named = [{"which": which, **age} for which, age in zip(("before", "after"), ages, strict=True)]
    report.tables.append(Table("latency at 500 messages/s", ages_of, named))
    return report
