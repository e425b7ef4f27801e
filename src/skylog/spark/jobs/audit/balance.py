"""The balance of reports as a DataFrame. `skylog.audit.books` finds it, a topic at a time, in Spark's Python workers.

A topic has far more reports than the books need to know apart. So before they get them, Spark puts together what adds
up: all that producers reported; what a group or a table reported of a partition; and what brokers reported of
neighbouring ranges of a partition, where no reader stands between them. What is left grows with windows and partitions
and not with the number of reports.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from skylog.audit.books import DEFAULT_GRACE_MS, Books
from skylog.audit.counts import check_window
from skylog.audit.report import DEFAULT_WINDOW_MS, Count, Report, Tier
from skylog.spark.jobs.audit.reports import COUNT_FIELDS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from skylog.audit.verdict import Balance

FOREVER_MS: Final = 1 << 62
_LAST_OF_CALENDAR_MS: Final = 253_402_300_799_999
_WHO: Final = ("tier", "source", "partition", "stretch")
_SCHEMA: Final = (
    "topic STRING, window_start_ms LONG, window_end_ms LONG, tier STRING, source STRING, messages LONG, "
    "size_bytes LONG, verdict STRING, finding STRING, finding_messages LONG, finding_rank INT"
)
_ARROW_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("window_start_ms", pa.int64()),
        ("window_end_ms", pa.int64()),
        ("tier", pa.string()),
        ("source", pa.string()),
        ("messages", pa.int64()),
        ("size_bytes", pa.int64()),
        ("verdict", pa.string()),
        ("finding", pa.string()),
        ("finding_messages", pa.int64()),
        ("finding_rank", pa.int32()),
    ]
)


@dataclass(frozen=True, slots=True)
class Period:
    """Windows that end after `since_ms` and begin before `until_ms`, and not before `begins_ms`, if that is known:
    the time of the oldest report that is left."""

    since_ms: int = 0
    until_ms: int = FOREVER_MS
    begins_ms: int = 0

    def holds(self, balance: Balance) -> bool:
        return balance.window_end_ms > self.since_ms and self.begins_ms <= balance.window_start_ms < self.until_ms


def balance(
    reports: DataFrame,
    period: Period | None = None,
    window_ms: int = DEFAULT_WINDOW_MS,
    *,
    now_ms: int = FOREVER_MS,
    grace_ms: int = DEFAULT_GRACE_MS,
    topics: Collection[str] | None = None,
    groups: Collection[str] | None = None,
    required: Collection[Tier] = (),
) -> DataFrame:
    """A row for each topic, window, tier and source.

    `messages` and `size_bytes` are what that source counted, `verdict` is that of the window. Where the source has too
    few or too many, `finding` says which, `finding_messages` how many, and `finding_rank` is 0 for the worst of the
    window. A tier that is `required` and absent is a row without messages. The options are those of `Books.balance`;
    if nothing is said of the time, no window is open. Raises ConfigError for a window that is too short.
    """
    check_window(window_ms)
    chosen, asked = period or Period(), None if groups is None else frozenset(groups)
    is_by_name, tiers = topics is not None, frozenset(required)

    def settle(key: tuple[pa.StringScalar], found: pa.Table) -> pa.Table:
        topic: str = key[0].as_py()
        books = Books(window_ms)
        for report in _reports(topic, found):
            books.add(report)
        balances = books.balance(now_ms, grace_ms, topics=[topic] if is_by_name else None, groups=asked, required=tiers)
        rows = [row for each in balances if chosen.holds(each) for row in _rows(each)]
        columns = list(zip(*rows, strict=True)) or [()] * len(_ARROW_SCHEMA)
        return pa.table(list(map(pa.array, columns, _ARROW_SCHEMA.types)), schema=_ARROW_SCHEMA)

    if topics is not None:
        reports = reports.filter(F.col("topic").isin(*topics))
    found = put_together(reports, window_ms).groupBy("topic").applyInArrow(settle, _SCHEMA)
    in_calendar = F.col("window_start_ms").between(0, _LAST_OF_CALENDAR_MS)
    start = F.when(in_calendar, F.timestamp_millis("window_start_ms")).alias("window_start")
    return found.select("topic", start, *found.columns[1:])


def put_together(reports: DataFrame, window_ms: int) -> DataFrame:
    """What reports in force add up to, in windows of `window_ms`: a row for each span of windows that one source, or
    all producers or brokers, counted of a partition; for brokers, of a stretch of it that readers don't stand inside.

    A report without counts is a row without times: it has its offsets.
    """
    is_stored, is_produced = F.col("tier") == Tier.STORED.value, F.col("tier") == Tier.PRODUCED.value
    is_reader = ~is_stored & ~is_produced
    reached = _reached(reports.filter(is_reader))
    # One who has read nothing of a partition stands at offset 0.
    passed = F.size(F.expr("filter(coalesce(reached, array()), each -> each < least_end_offset)"))
    stretch = passed + (F.col("least_end_offset") > 0).cast("int")
    count = F.col("count")
    first = _start_of_window(count.start_ms, window_ms)
    last = _start_of_window(count.end_ms - 1, window_ms)
    end_offset = F.when(is_stored, F.col("least_end_offset")).otherwise(F.col("end_offset"))
    place = {"partition": F.col("partition"), "start_offset": F.col("start_offset"), "end_offset": end_offset}
    return (
        reports.join(F.broadcast(reached), ["topic", "partition"], "left")
        .select(
            "topic",
            "tier",
            F.when(is_reader, F.col("source")).otherwise("").alias("source"),
            *(F.when(~is_produced, each).alias(name) for name, each in place.items()),
            F.when(is_stored, stretch).otherwise(0).alias("stretch"),
            F.explode_outer("counts").alias("count"),
        )
        .groupBy("topic", *_WHO, first.alias("start_ms"), (last + window_ms).alias("end_ms"))
        .agg(
            F.min("start_offset").alias("start_offset"),
            F.max("end_offset").alias("end_offset"),
            F.sum(count.messages).alias("messages"),
            F.sum(F.when(count.messages > 0, count.size_bytes).otherwise(0)).alias("size_bytes"),
            F.sum(count.uncertain).alias("uncertain"),
        )
    )


def _reached(readers: DataFrame) -> DataFrame:
    """Where the readers of each partition stand."""
    return (
        readers.groupBy("topic", "partition", "tier", "source")
        .agg(F.max("end_offset").alias("end_offset"))
        .groupBy("topic", "partition")
        .agg(F.collect_set("end_offset").alias("reached"))
    )


def _start_of_window(time_ms: Column, window_ms: int) -> Column:
    return time_ms - F.pmod(time_ms, F.lit(window_ms))


# -- a topic, in a Python worker


def _reports(topic: str, found: pa.Table) -> Iterator[Report]:
    """A report of each source, partition and stretch; in the order of their offsets, so that none replaces another."""
    counts: dict[tuple[Any, ...], list[Count]] = {}
    offsets: dict[tuple[Any, ...], tuple[int, int]] = {}
    for batch in found.to_batches():
        for row in batch.to_pylist():
            who = tuple(row[name] for name in _WHO)
            counted = counts.setdefault(who, [])
            if row["start_ms"] is not None:
                counted.append(Count(*(row[name] for name in COUNT_FIELDS)))
            if row["partition"] is not None:
                start_offset, end_offset = offsets.get(who, (row["start_offset"], row["end_offset"]))
                offsets[who] = min(start_offset, row["start_offset"]), max(end_offset, row["end_offset"])
    for who in sorted(counts, key=lambda each: each[-1]):
        tier, source, partition, _ = who
        start, end = offsets.get(who, (None, None))
        yield Report(Tier(tier), source, topic, counts[who], 0, partition, start, end, id=repr(who))


def _rows(balance: Balance) -> Iterator[tuple[Any, ...]]:
    """In the order of the schema."""
    sizes = balance.sizes
    counted: dict[tuple[Tier, str], tuple[int | None, int | None]] = {}
    if balance.produced is not None:
        counted[Tier.PRODUCED, ""] = balance.produced, sizes.produced
    if balance.stored is not None:
        counted[Tier.STORED, ""] = balance.stored, sizes.stored
    counted |= {(Tier.CONSUMED, group): (count, sizes.consumed[group]) for group, count in balance.consumed.items()}
    counted |= {(Tier.LANDED, table): (count, sizes.landed[table]) for table, count in balance.landed.items()}
    findings = {(each.tier, each.source): (rank, each) for rank, each in enumerate(balance.findings)}
    for key in counted | dict.fromkeys(findings):
        messages, size_bytes = counted.get(key, (None, None))
        rank, finding = findings.get(key, (None, None))
        yield (
            balance.topic,
            balance.window_start_ms,
            balance.window_end_ms,
            key[0].value,
            key[1],
            messages,
            size_bytes,
            balance.verdict.value,
            finding.verdict.value if finding else None,
            finding.messages if finding else None,
            rank,
        )
