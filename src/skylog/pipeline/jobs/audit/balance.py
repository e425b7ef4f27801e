"""The balance of reports as a DataFrame. `skylog.audit.books` computes it per topic, in Spark's Python workers.

A topic has far more reports than the books must distinguish. So Spark first aggregates the reports of all producers;
those of a group or a table for a partition; and those of brokers for adjacent ranges of a partition, unless a reader's
position is between them. The remaining rows grow with windows and partitions, not with the number of reports.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from skylog.audit.books import DEFAULT_GRACE_MS, Books
from skylog.audit.counts import check_window
from skylog.audit.report import DEFAULT_WINDOW_MS, Count, Report, Tier
from skylog.pipeline.jobs.audit.reports import COUNT_FIELDS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from skylog.audit.verdict import Balance

FOREVER_MS: Final = 1 << 62
_LAST_OF_CALENDAR_MS: Final = 253_402_300_799_999
_SOURCE_KEY: Final = ("tier", "source", "partition", "stretch")
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
    """Windows that end after `since_ms` and start before `until_ms`, but not before `begins_ms`: the time of the oldest
    report, if retention has deleted older ones."""

    since_ms: int = 0
    until_ms: int = FOREVER_MS
    begins_ms: int = 0

    def includes(self, balance: Balance) -> bool:
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
    """Return a row for each topic, window, tier and source.

    `messages` and `size_bytes` are the counts of that source, and `verdict` is that of the window. If the source has
    too few or too many messages, `finding` is the verdict on it, `finding_messages` the difference, and `finding_rank`
    is 0 for the worst finding of the window. A `required` tier without counts is a row without messages. The options
    are those of `Books.balance`. By default no window is open. Raises ConfigError if the window is too short.
    """
    check_window(window_ms)
    chosen, chosen_groups = period or Period(), None if groups is None else frozenset(groups)
    is_by_name, tiers = topics is not None, frozenset(required)

    def settle(key: tuple[pa.StringScalar], found: pa.Table) -> pa.Table:
        topic: str = key[0].as_py()
        books = Books(window_ms)
        for report in _reports(topic, found):
            books.add(report)
        balances = books.balance(
            now_ms, grace_ms, topics=[topic] if is_by_name else None, groups=chosen_groups, required=tiers
        )
        rows = [row for each in balances if chosen.includes(each) for row in _rows(each)]
        columns = list(zip(*rows, strict=True)) or [()] * len(_ARROW_SCHEMA)
        return pa.table(list(map(pa.array, columns, _ARROW_SCHEMA.types)), schema=_ARROW_SCHEMA)

    if topics is not None:
        reports = reports.filter(F.col("topic").isin(*topics))
    found = aggregate(reports, window_ms).groupBy("topic").applyInArrow(settle, _SCHEMA)
    in_calendar = F.col("window_start_ms").between(0, _LAST_OF_CALENDAR_MS)
    start = F.when(in_calendar, F.timestamp_millis("window_start_ms")).alias("window_start")
    return found.select("topic", start, *found.columns[1:])


def aggregate(reports: DataFrame, window_ms: int) -> DataFrame:
    """Aggregate effective reports in windows of `window_ms`.

    The result has a row for each span of windows and partition that one source, all producers or all brokers counted.
    For brokers it has a row per stretch: a range of the partition without a reader's position inside. A report without
    counts becomes a row with offsets and without times.
    """
    is_stored, is_produced = F.col("tier") == Tier.STORED.value, F.col("tier") == Tier.PRODUCED.value
    is_reader = ~is_stored & ~is_produced
    reached = _reached(reports.filter(is_reader))
    # The position of a reader that has read nothing is offset 0.
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
        .groupBy("topic", *_SOURCE_KEY, first.alias("start_ms"), (last + window_ms).alias("end_ms"))
        .agg(
            F.min("start_offset").alias("start_offset"),
            F.max("end_offset").alias("end_offset"),
            F.sum(count.messages).alias("messages"),
            F.sum(F.when(count.messages > 0, count.size_bytes).otherwise(0)).alias("size_bytes"),
            F.sum(count.uncertain).alias("uncertain"),
        )
    )


def _reached(readers: DataFrame) -> DataFrame:
    """Return the positions of the readers of each partition."""
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
    """Yield a report per source, partition and stretch, in offset order, so that none replaces another."""
    counts: dict[tuple[Any, ...], list[Count]] = {}
    offsets: dict[tuple[Any, ...], tuple[int, int]] = {}
    for batch in found.to_batches():
        for row in batch.to_pylist():
            key = tuple(row[name] for name in _SOURCE_KEY)
            counted = counts.setdefault(key, [])
            if row["start_ms"] is not None:
                counted.append(Count(*(row[name] for name in COUNT_FIELDS)))
            if row["partition"] is not None:
                start_offset, end_offset = offsets.get(key, (row["start_offset"], row["end_offset"]))
                offsets[key] = min(start_offset, row["start_offset"]), max(end_offset, row["end_offset"])
    for key in sorted(counts, key=lambda each: each[-1]):
        tier, source, partition, _ = key
        start, end = offsets.get(key, (None, None))
        yield Report(Tier(tier), source, topic, counts[key], 0, partition, start, end, id=repr(key))


def _rows(balance: Balance) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a window, with columns in the order of the schema."""
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
