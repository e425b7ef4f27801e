"""skylog beside Apache Kafka in one run: the same clients, in turns, on the same machine.

The rows are in groups. Most compare one broker each; `replication` and `failover` compare clusters of three brokers.
Both sides run the whole time. Kafka is warmed up first: its JVM compiles what runs often. Every figure is measured with
one side after the other, and the medians are compared. CPU time and memory are those of the brokers, with skylog's
cleaning process and without ZooKeeper.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from benchmarks import kafka_compaction, kafka_parts, replication
from benchmarks.clusters import BROKERS, BrokerCluster, both, create_topic
from benchmarks.kafka_compaction import CODECS
from benchmarks.kafka_parts import CONNECTIONS, Figures
from benchmarks.replication import BATCHES, PARTITIONS, warm_up
from benchmarks.report import Check, Column, Options, Plot, Report, Table, median, progress, stored_figures

SETTINGS = {
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.flush.scheduler.interval.ms": "200",
}
WARM_UP_S = 30
QUICK_WARM_UP_S = 5

Measure = Callable[[BrokerCluster], Figures]


class Row(NamedTuple):
    """One figure of both sides. `bar` is that of skylog's figure over Kafka's, `own_bar` that of skylog's figure."""

    key: str
    what: str
    form: str
    bar: float | None = None
    at_most: bool = False
    own_bar: float | None = None


def _produce_rows(prefix: str, what: str) -> list[Row]:
    rows = []
    for batch in BATCHES:
        rows.append(Row(f"{prefix}rate {batch}", f"{what}, batches of {batch}, messages/s", "{:,.0f}", 1.0))
        rows.append(Row(f"{prefix}cpu {batch}", f"{what}, batches of {batch}, CPU µs/message", "{:.2f}", 0.5, True))
    return rows


def _compaction_rows(codec: str) -> list[Row]:
    name = "uncompressed" if codec == "none" else codec
    return [
        Row(f"{codec} compaction", f"compaction, {name}, MB/s", "{:,.0f}", 1.3),
        Row(f"{codec} compaction cpu", f"compaction, {name}, CPU s/GB", "{:.1f}", 1.0, True),
    ]


GROUPS: dict[str, list[Row]] = {
    "produce": _produce_rows("", "produce"),
    "single": [
        Row("requests", f"one message per request, {CONNECTIONS} connections, requests/s", "{:,.0f}", 3.0),
        Row("request cpu", "one message per request, CPU µs/request", "{:.1f}", 0.5, True),
    ],
    "consume": [
        Row("consumed", "consume, messages/s", "{:,.0f}", 1.0),
        Row("consumer cpu", "consume, CPU µs/message", "{:.2f}", 0.5, True),
    ],
    "latency": [
        Row("ack p50", "acknowledgement of a request, p50 ms", "{:.3f}", 0.6, True),
        Row("ack p99", "acknowledgement of a request, p99 ms", "{:.2f}", 1.0, True),
        Row("client ack p50", "the same with confluent-kafka, p50 ms", "{:.2f}"),
        Row("age p50", "from a request to the response of a fetch, p50 ms", "{:.3f}", 0.6, True),
        Row("age p99", "from a request to the response of a fetch, p99 ms", "{:.2f}", 1.0, True),
        Row("p50_ms", "producer to consumer at 500 messages/s, p50 ms", "{:.2f}", 0.6, True),
        Row("p99_ms", "producer to consumer at 500 messages/s, p99 ms", "{:.2f}", 1.0, True),
    ],
    "memory": [Row("memory", "memory under load, MB", "{:,.0f}", 0.2, True)],
    "start": [
        Row("start", "start to the first acknowledged message, s", "{:.2f}", 0.4, True, 0.4),
        Row("idle memory", "memory after it, MB", "{:,.1f}", 0.2, True, 45.0),
    ],
    **{f"compaction-{codec}": _compaction_rows(codec) for codec in CODECS},
    "beside": [Row("beside", "p99 of a producer beside compaction, × idle", "{:.2f}", own_bar=3.0)],
    "replication": [
        *_produce_rows("rf3 ", "RF 3, acks=all"),
        Row("rf3 p50_ms", "RF 3, producer to consumer, p50 ms", "{:.2f}", 1.0, True),
        Row("rf3 p99_ms", "RF 3, producer to consumer, p99 ms", "{:.2f}", 1.0, True),
        Row("rf3 memory", "RF 3, memory of the three brokers, MB", "{:,.0f}", 0.2, True),
    ],
    "failover": [Row("failover", "RF 3, longest pause after SIGKILL of the leader, s", "{:.1f}", 1.0, True)],
}
CLUSTER_GROUPS = ("replication", "failover")


def run(options: Options) -> Report:
    if unknown := set(options.rows) - set(GROUPS):
        raise SystemExit(f"no rows of kafka are called {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    report = Report("kafka", "skylog beside Apache Kafka")
    chosen = [name for name in GROUPS if not options.rows or name in options.rows]
    found = stored_figures(report.name) if options.rows else {}
    single = [name for name in chosen if name not in CLUSTER_GROUPS]
    clustered = [name for name in chosen if name in CLUSTER_GROUPS]
    for names, size in ((single, 1), (clustered, BROKERS)):
        if names:
            found |= _measure_all(names, size, options, report)
    report.figures = found
    _fill(report, found)
    return report


def _measure_all(names: Sequence[str], size: int, options: Options, report: Report) -> dict[str, Any]:
    """Measure groups of rows with brokers of their own. Return the figures by row and side."""
    figures: dict[str, Any] = {}
    progress(f"kafka: starting {size} broker{'s' * (size > 1)} of each")
    with both(options.work_dir, size, SETTINGS, is_quick=options.quick) as (sides, note):
        if note:
            report.notes.append(f"without Apache Kafka: {note}")
        for side in sides:
            create_topic(side, "bench", PARTITIONS)
            create_topic(side, "paced", 1)
            progress(f"kafka: warming up {side.name}")
            warm_up(side, QUICK_WARM_UP_S if options.quick else WARM_UP_S)
        for name in names:
            turns, measure = _how(name, options)
            figures |= _take(name, turns, measure, sides, options)
    return figures


def _how(name: str, options: Options) -> tuple[int, Measure]:
    """Return how often a group is measured, and how."""
    rounds = 1 if options.quick else options.rounds
    if name.startswith("compaction-"):
        return min(rounds, 3), kafka_compaction.Compaction(name.removeprefix("compaction-"), options.quick)
    kinds: dict[str, tuple[int, Measure]] = {
        "produce": (rounds, partial(kafka_parts.produce_batches, quick=options.quick)),
        "single": (rounds, partial(kafka_parts.single_requests, seconds=options.seconds)),
        "consume": (rounds, partial(kafka_parts.consume, quick=options.quick)),
        "latency": (1, partial(kafka_parts.latencies, quick=options.quick)),
        "memory": (1, lambda side: {"memory": side.rss_bytes() / 1e6}),
        "start": (rounds, kafka_parts.start),
        "beside": (min(rounds, 3), kafka_compaction.Beside(options.quick)),
        "replication": (1, partial(_replicated, options=options)),
        "failover": (1, lambda side: {"failover": replication.fail_over(side)}),
    }
    return kinds[name]


def _replicated(side: BrokerCluster, options: Options) -> Figures:
    figures: Figures = {}
    for batch in BATCHES:
        messages = replication.MESSAGES[batch] // replication.TURNS
        turns = [replication.produce_batches(side, batch, messages) for _ in range(1 if options.quick else 5)]
        figures[f"rf3 rate {batch}"] = median([each["rate"] for each in turns])
        figures[f"rf3 cpu {batch}"] = median([each["cpu_us"] for each in turns])
    figures |= {f"rf3 {key}": value for key, value in replication.latency(side, options.quick).items()}
    return figures | {"rf3 memory": side.rss_bytes() / 1e6}


def _take(name: str, turns: int, measure: Measure, sides: Sequence[BrokerCluster], options: Options) -> dict[str, Any]:
    """Measure a group with one side after the other, the order changing with each turn. Return the medians."""
    taken: dict[str, dict[str, list[float]]] = {side.name: defaultdict(list) for side in sides}
    for turn in range(turns):
        for side in sides if turn % 2 else sides[::-1]:
            progress(f"kafka: {name}, {side.name}, {turn + 1} of {turns}")
            for key, value in measure(side).items():
                taken[side.name][key].append(value)
    when = datetime.now(UTC).isoformat(timespec="seconds")
    return {
        row.key: {
            "sides": {side: median(values[row.key]) for side, values in taken.items()},
            "all": {side: values[row.key] for side, values in taken.items()},
            "when": when,
            "quick": options.quick,
        }
        for row in GROUPS[name]
    }


def _fill(report: Report, found: dict[str, Any]) -> None:
    rows: list[dict[str, Any]] = []
    names: list[str] = []
    ratios: dict[str, float] = {}
    for row in (row for group in GROUPS.values() for row in group if row.key in found):
        sides: dict[str, float] = found[row.key]["sides"]
        names = [*sides] if len(sides) >= len(names) else names
        ours, *others = sides.values()
        shown = {"what": row.what, "ours": row.form.format(ours)}
        if row.own_bar is not None:
            report.checks.append(Check(row.what, ours, row.own_bar, at_most=True))
        for theirs in others:
            ratio = ratios[row.what] = ours / theirs
            shown |= {"theirs": row.form.format(theirs), "ratio": f"{ratio:.2f}"}
            if row.bar is not None:
                shown["bar"] = f"{'≤' if row.at_most else '≥'} {row.bar:g}"
                report.checks.append(Check(f"{row.what}, over Kafka's", ratio, row.bar, row.at_most))
        rows.append(shown)
    columns = [Column("what", "what"), Column("ours", names[0])]
    if len(names) > 1:
        columns += [Column("theirs", names[1]), Column("ratio", "ratio"), Column("bar", "bar")]
        report.plots.append(_plot(ratios))
    report.tables.append(Table("", columns, rows))
    if any(each["quick"] for each in found.values()):
        report.notes.append("Some rows are of a quick run: indicative only.")


def _plot(ratios: dict[str, float]) -> Plot:
    labels, values = [*ratios], [*ratios.values()]
    return Plot("skylog over Apache Kafka", "ratio", labels, {"ratio": values}, [1.0], logarithmic=True, lying=True)
