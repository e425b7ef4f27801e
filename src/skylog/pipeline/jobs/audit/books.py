"""One run of the audit with Spark: reads the audit topic and commits of a cluster, and computes the balance."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from skylog.audit.books import DEFAULT_GRACE_MS
from skylog.audit.consumer_tier import pending_reports
from skylog.audit.report import AUDIT_TOPIC, DEFAULT_WINDOW_MS, NoAuditTopicError, Report, Tier
from skylog.audit.verdict import Balance, Finding, Sizes, Verdict
from skylog.client import Admin, Connection, ConsumerGroups
from skylog.pipeline.cluster import Cluster
from skylog.pipeline.increments import Increments
from skylog.pipeline.jobs.audit.balance import Period, balance
from skylog.pipeline.jobs.audit.reports import decoded, effective
from skylog.pipeline.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RECORDS: Final = "value BINARY, partition INT, offset LONG"


@dataclass(frozen=True, slots=True)
class BalanceQuery:
    """The windows to compare, and the tiers that must have counted in them. See `balance`."""

    period: Period = field(default_factory=Period)
    window_ms: int = DEFAULT_WINDOW_MS
    grace_ms: int = DEFAULT_GRACE_MS
    topics: Sequence[str] | None = None
    groups: Sequence[str] | None = None
    required: frozenset[Tier] = frozenset()


@dataclass(frozen=True, slots=True)
class BalanceResult:
    """The balance, `frame`, of `message_count` messages of the audit topic, `foreign_count` of which are not reports.
    `begins_ms` is the time of the oldest report if retention has deleted some, or else 0."""

    frame: DataFrame
    message_count: int
    foreign_count: int
    begins_ms: int

    def balances(self) -> Iterator[Balance]:
        """Yield every window of every topic, in order. Only a part of them is in memory at a time."""
        rows = self.frame.drop("window_start").orderBy("topic", "window_start_ms").toLocalIterator()
        for _, tiers in groupby(rows, key=attrgetter("topic", "window_start_ms")):
            yield _balance(list(tiers))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the balance as a Delta table, and replace the rows of the one before. Raises TableError."""
        Table(path).open().replace(self.frame, {}, {})


@contextmanager
def run_balance(
    spark: SparkSession, cluster: Cluster | str, query: BalanceQuery, now_ms: int
) -> Iterator[BalanceResult]:
    """Compute the current balance of a cluster. Raises NoAuditTopicError.

    Spark caches the data until the end of the block.
    """
    cluster = Cluster.of(cluster)
    connection = cluster.connection()
    if all(topic.name != AUDIT_TOPIC for topic in Admin(connection).list_topics()):
        raise NoAuditTopicError(cluster.bootstrap)
    # A report is removed from the commits after it was stored in the topic, so read the commits before the end offset.
    pending = _pending(connection)
    options = {"minPartitions": str(spark.sparkContext.defaultParallelism)}
    increments = Increments(cluster, [AUDIT_TOPIC], options=options)
    increment = increments.next(None)
    records = increments.frame(spark, increment) if increment else spark.createDataFrame([], _RECORDS)
    cut = {key.partition for key, offset in increment.start.items() if offset} if increment else set()
    messages = decoded(records).persist()
    try:
        message_count, foreign_count, begins_ms = _facts(messages, cut)
        frame = balance(
            effective(messages, pending),
            replace(query.period, begins_ms=begins_ms),
            query.window_ms,
            now_ms=now_ms,
            grace_ms=query.grace_ms,
            topics=query.topics,
            groups=query.groups,
            required=query.required,
        ).persist()
        try:
            yield BalanceResult(frame, message_count, foreign_count, begins_ms)
        finally:
            frame.unpersist()
    finally:
        messages.unpersist()


def _pending(connection: Connection) -> list[Report]:
    """Return the reports in the commits of groups. Some may be published already."""
    return [
        report
        for commits in ConsumerGroups(connection).committed_metadata().values()
        for metadata in commits.values()
        for report in pending_reports(metadata)
    ]


def _facts(messages: DataFrame, cut: set[int]) -> tuple[int, int, int]:
    """Return the numbers of messages and of foreign messages, and the time of the oldest report in `cut` partitions."""
    at = F.when(F.col("id").isNotNull(), F.col("audit_offset"))
    rows = (
        messages.groupBy("audit_partition")
        .agg(F.count("*").alias("all"), F.count("id").alias("reports"), F.min_by("reported_at_ms", at).alias("begins"))
        .collect()
    )
    begins_ms = max((row["begins"] or 0 for row in rows if row["audit_partition"] in cut), default=0)
    return sum(row["all"] for row in rows), sum(row["all"] - row["reports"] for row in rows), max(begins_ms, 0)


def _balance(rows: Sequence[Any]) -> Balance:
    """Build the balance of one window from its rows."""
    counted = {
        (row.tier, row.source): row for row in sorted(rows, key=attrgetter("source")) if row.messages is not None
    }
    found = sorted((row for row in rows if row.finding is not None), key=attrgetter("finding_rank"))

    def column(name: str) -> tuple[int | None, int | None, dict[str, int], dict[str, int]]:
        produced, stored = counted.get((Tier.PRODUCED, "")), counted.get((Tier.STORED, ""))
        by_source: dict[str, dict[str, int]] = {Tier.CONSUMED: {}, Tier.LANDED: {}}
        for (tier, source), row in counted.items():
            if tier in by_source:
                by_source[tier][source] = row[name]
        return (
            None if produced is None else produced[name],
            None if stored is None else stored[name],
            by_source[Tier.CONSUMED],
            by_source[Tier.LANDED],
        )

    return Balance(
        rows[0].topic,
        rows[0].window_start_ms,
        rows[0].window_end_ms,
        *column("messages"),
        Sizes(*column("size_bytes")),
        Verdict(rows[0].verdict),
        tuple(Finding(Tier(row.tier), row.source, Verdict(row.finding), row.finding_messages) for row in found),
    )
