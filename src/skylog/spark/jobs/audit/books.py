"""One look at a cluster's books with Spark: reads its audit topic and its commits, and gives the balance."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from skylog.audit.books import DEFAULT_GRACE_MS
from skylog.audit.consumer_tier import pending_reports
from skylog.audit.report import AUDIT_TOPIC, DEFAULT_WINDOW_MS, NoAuditTopicError, Report, Tier
from skylog.audit.verdict import Balance, Finding, Sizes, Verdict
from skylog.client import Admin, Connection, ConsumerGroups
from skylog.errors import SkylogError
from skylog.spark.jobs.audit.balance import Period, balance
from skylog.spark.jobs.audit.reports import decoded, in_force
from skylog.spark.jobs.directories import check_directory
from skylog.spark.jobs.increments import Increments
from skylog.spark.jobs.parquet import write_parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RECORDS: Final = "value BINARY, partition INT, offset LONG"


class NoBalanceTableError(SkylogError):
    """A directory that would be replaced by a balance, and holds something else."""


@dataclass(frozen=True, slots=True)
class Question:
    """Which windows to look at, and who must have counted in them; as `balance` takes it."""

    period: Period = field(default_factory=Period)
    window_ms: int = DEFAULT_WINDOW_MS
    grace_ms: int = DEFAULT_GRACE_MS
    topics: Sequence[str] | None = None
    groups: Sequence[str] | None = None
    required: frozenset[Tier] = frozenset()


@dataclass(frozen=True, slots=True)
class Answer:
    """`frame` is the balance. It was found from `message_count` messages of the audit topic, `foreign_count` of which
    are no reports. `begins_ms` is the time of the oldest report once retention has deleted some, or 0."""

    frame: DataFrame
    message_count: int
    foreign_count: int
    begins_ms: int

    def balances(self) -> Iterator[Balance]:
        """Every window of every topic, in order. No more than a part of them is in memory at a time."""
        rows = self.frame.drop("window_start").orderBy("topic", "window_start_ms").toLocalIterator()
        for _, tiers in groupby(rows, key=attrgetter("topic", "window_start_ms")):
            yield _balance(list(tiers))

    def save(self, path: Path) -> None:
        """Write the balance as a Parquet table in the place of the one that is there.

        Raises NoBalanceTableError, DirectoryError, and LostRowsError; then the table that was there stays.
        """
        path = check_directory(path).absolute()
        check_table(path)
        new, old = (path.with_name(f".{path.name}.{uuid.uuid4().hex}") for _ in range(2))
        try:
            write_parquet(self.frame.orderBy("topic", "window_start_ms", "tier", "source"), new)
            _replace(path, new, old)
        finally:
            shutil.rmtree(new, ignore_errors=True)


def _replace(path: Path, new: Path, old: Path) -> None:
    """Let `new` take the place of `path`, which moves to `old` meanwhile and comes back if that fails."""
    is_there = path.exists()
    if is_there:
        os.rename(path, old)
    try:
        os.rename(new, path)
    except BaseException:
        if is_there:
            os.rename(old, path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def check_table(path: Path) -> None:
    """Raise NoBalanceTableError unless nothing is there, or nothing but what Spark writes for a table."""
    if path.is_dir():
        foreign = [each.name for each in path.iterdir() if not each.name.startswith(("part-", ".part-", "_", "._"))]
        if not foreign:
            return
        raise NoBalanceTableError(f"{path} holds '{foreign[0]}', so it is no balance: name a directory that is new")
    if path.exists():
        raise NoBalanceTableError(f"{path} is a file: name a directory that is new")


@contextmanager
def answered(spark: SparkSession, bootstrap: str, question: Question, now_ms: int) -> Iterator[Answer]:
    """Balance the books of a cluster as they are now. Raises NoAuditTopicError.

    What the answer reads from is kept by Spark up to the end of the block.
    """
    connection = Connection(bootstrap)
    if all(topic.name != AUDIT_TOPIC for topic in Admin(connection).list_topics()):
        raise NoAuditTopicError(bootstrap)
    # A report leaves the commits after it has been stored in the topic, so they are read before the topic's end is.
    waiting = _waiting(connection)
    options = {"minPartitions": str(spark.sparkContext.defaultParallelism)}
    increments = Increments(bootstrap, [AUDIT_TOPIC], options=options)
    increment = increments.next(None)
    records = increments.frame(spark, increment) if increment else spark.createDataFrame([], _RECORDS)
    cut = {key.partition for key, offset in increment.start.items() if offset} if increment else set()
    messages = decoded(records).persist()
    try:
        message_count, foreign_count, begins_ms = _facts(messages, cut)
        frame = balance(
            in_force(messages, waiting),
            replace(question.period, begins_ms=begins_ms),
            question.window_ms,
            now_ms=now_ms,
            grace_ms=question.grace_ms,
            topics=question.topics,
            groups=question.groups,
            required=question.required,
        ).persist()
        try:
            yield Answer(frame, message_count, foreign_count, begins_ms)
        finally:
            frame.unpersist()
    finally:
        messages.unpersist()


def _waiting(connection: Connection) -> list[Report]:
    """The reports in the commits of groups, published or not."""
    return [
        report
        for commits in ConsumerGroups(connection).committed_metadata().values()
        for metadata in commits.values()
        for report in pending_reports(metadata)
    ]


def _facts(messages: DataFrame, cut: set[int]) -> tuple[int, int, int]:
    """How many messages there are, how many are no reports, and the time of the oldest report of `cut` partitions."""
    at = F.when(F.col("id").isNotNull(), F.col("audit_offset"))
    rows = (
        messages.groupBy("audit_partition")
        .agg(F.count("*").alias("all"), F.count("id").alias("reports"), F.min_by("reported_at_ms", at).alias("begins"))
        .collect()
    )
    begins_ms = max((row["begins"] or 0 for row in rows if row["audit_partition"] in cut), default=0)
    return sum(row["all"] for row in rows), sum(row["all"] - row["reports"] for row in rows), max(begins_ms, 0)


def _balance(rows: Sequence[Any]) -> Balance:
    """One window, of the rows of its tiers."""
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
