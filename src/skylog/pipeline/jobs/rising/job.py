"""The job: stores counts and ranking as tables, and publishes the ranking to a topic.

The counts are the state of the job, in the table `TABLE__counts`; the ranking follows from them. Both are replaced with
every increment, counts first, together with the end offsets. If a crash prevents the second commit, the next start
makes up for it.

The topic is compacted and keyed by page, so its last values are the ranking. The job publishes a ranking after its
commit: the pages of the ranking, and a tombstone for each page that only the one before had. At its start the job
publishes the newest ranking again, because a crash may have prevented it.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

from skylog.pipeline.cluster import Cluster
from skylog.pipeline.delta.errors import TableError
from skylog.pipeline.delta.reading import read_files
from skylog.pipeline.delta.table_log import TableLog
from skylog.pipeline.increments import Offsets
from skylog.pipeline.job_definition import Job
from skylog.pipeline.jobs.rising.ranking import (
    PAGE,
    SMOOTHING,
    TOP,
    VIEW,
    RankingPeriod,
    bucket_counts,
    merge_counts,
    page_views,
    ranking,
)
from skylog.pipeline.one_task import are_few, has_one_partition
from skylog.pipeline.table import Table, retried

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

MAX_AHEAD_MS: Final = 600_000
"""Events from further in the future are ignored: one wrong clock would push all others out of the period."""
COUNTS: Final = "__counts"
RANKING: Final = "skylog.ranking"
_BUCKET: Final = "skylog.bucket_ms"
_FEW: Final = 8


class RankingPublisher:
    """Publishes rankings to a compacted topic. Creates the topic if it does not exist."""

    def __init__(self, cluster: Cluster | str, topic: str, partitions: int | None = None) -> None:
        cluster = Cluster.of(cluster)
        if cluster.ensure_topic(topic, partitions, {"cleanup.policy": "compact"}):
            logger.info("created compacted topic '%s'", topic)
        self._topic = topic
        self._producer = cluster.producer()

    def publish(self, pages: Mapping[str, str], before: Iterable[str]) -> None:
        """Send the JSON of each page, and a tombstone for each page of `before` that is not in `pages`.

        Raises DeliveryError.
        """
        with self._producer.batch():
            for page, row in pages.items():
                self._producer.send(self._topic, row.encode(), page)
            for page in sorted(set(before) - pages.keys()):
                self._producer.send(self._topic, None, page)

    def close(self) -> None:
        self._producer.close()


@dataclass(frozen=True)
class Ranking:
    """The sink of the job: takes bucket counts, and keeps the ranking in the table at `path` up to date.

    It also publishes the ranking to the topic `into` of `cluster`, if set.
    """

    path: str | os.PathLike[str]
    period: RankingPeriod = field(default_factory=RankingPeriod)
    top: int = TOP
    smoothing: float = SMOOTHING
    cluster: Cluster = field(default_factory=Cluster)
    into: str | None = None

    @property
    def target(self) -> str:
        return self.into or self._table.target

    @property
    def _table(self) -> Table:
        return Table(self.path)

    def open(self) -> OpenRanking:
        return OpenRanking(self, None if self.into is None else RankingPublisher(self.cluster, self.into))

    def for_unparsed(self) -> Table:
        return self._table.for_unparsed()


class OpenRanking:
    """The ranking during a run. See `skylog.pipeline.sink.OpenSink`."""

    def __init__(self, settings: Ranking, publisher: RankingPublisher | None) -> None:
        table = Table(settings.path)
        self._ranking = table.open()
        self._counts = Table(table.storage.sibling(COUNTS).uri).open()
        self._period = settings.period
        self._top, self._smoothing = settings.top, settings.smoothing
        self._publisher = publisher
        self._topics: Collection[str] = ()

    def offsets(self, topics: Collection[str]) -> Offsets:
        """Return the end offsets of the counts. Also commits and publishes the ranking if a crash prevented that."""
        from pyspark.sql import SparkSession

        self._topics = topics
        offsets = self._counts.offsets(topics)
        ranked = self._ranking.offsets(topics)
        if not offsets:
            return {}
        assert self._counts.log is not None
        self._check_bucket(self._counts.log)
        if ranked != offsets:
            self._rank(SparkSession.active(), offsets)
        self._publish()
        return offsets

    def write(
        self, rows: DataFrame, before: Offsets, after: Offsets, before_commit: Callable[[], None] = lambda: None
    ) -> None:
        retried(lambda: self._count(rows, before, after, before_commit))
        self._rank(rows.sparkSession, after)
        self._publish()

    def has_rows(self) -> bool:
        return self._counts.has_rows()

    def close(self) -> None:
        if self._publisher is not None:
            self._publisher.close()

    def _count(self, counts: DataFrame, before: Offsets, after: Offsets, before_commit: Callable[[], None]) -> None:
        """Add counts to the newest ones, which may be of other topics, too."""
        log = self._counts.refresh()
        if log is not None:
            is_one_task = are_few(log.files()) and has_one_partition(counts)
            kept = self._kept_counts(counts.sparkSession, log)
            counts = merge_counts(kept, counts, is_one_task=is_one_task)
        self._counts.replace(counts, before, after, {_BUCKET: str(self._period.bucket_ms)}, before_commit)

    def _rank(self, spark: SparkSession, after: Offsets) -> None:
        """Replace the ranking by that of the newest counts."""

        def rank() -> None:
            ranked = self._ranking.refresh()  # before the counts, so that a ranking of newer ones is a conflict
            log = self._counts.refresh()
            assert log is not None
            before = {} if ranked is None else ranked.offsets(self._topics)
            rows = ranking(_read(spark, log), self._period, self._top, self._smoothing).localCheckpoint()
            self._ranking.replace(rows, before, after, {RANKING: json.dumps(_ranking_json(rows))})

        retried(rank)

    def _kept_counts(self, spark: SparkSession, log: TableLog) -> DataFrame:
        """Return the counts so far, without buckets that are no longer in the period."""
        counts = _read(spark, log)
        bounds: list[Any] = [file.largest.get("newest_ms") for file in log.files()]
        newest = counts.agg(F.max("newest_ms")).collect()[0][0] if None in bounds else max(bounds, default=None)
        return counts if newest is None else counts.where(F.col("bucket_ms") >= self._period.start_of(newest))

    def _check_bucket(self, log: TableLog) -> None:
        found = next((each.facts[_BUCKET] for each in log.history(_FEW) if _BUCKET in each.facts), None)
        if found is not None and int(found) != self._period.bucket_ms:
            raise TableError(
                f"{log.storage.uri} has buckets of {found} ms, not of {self._period.bucket_ms}; use the same --bucket, "
                "or another table"
            )

    def _publish(self) -> None:
        if self._publisher is not None and self._ranking.log is not None:
            found = [
                json.loads(each.facts[RANKING]) for each in self._ranking.log.history(_FEW) if RANKING in each.facts
            ]
            if found:
                self._publisher.publish(found[0], found[1] if len(found) > 1 else ())


def rising_job(
    topics: Sequence[str],
    path: str | os.PathLike[str],
    *,
    cluster: Cluster | str | None = None,
    into: str | None = None,
    period: RankingPeriod | None = None,
    page: str = PAGE,
    event: str = VIEW,
    top: int = TOP,
    smoothing: float = SMOOTHING,
) -> Job:
    """Return the job that keeps the ranking in the table at `path` up to date, and in the topic `into` of `cluster`."""
    ranked = Ranking(path, period or RankingPeriod(), top, smoothing, Cluster.of(cluster), into)

    def rising(events: DataFrame) -> DataFrame:
        latest_ms = time.time_ns() // 1_000_000 + MAX_AHEAD_MS
        views = page_views(events, page, event).where(F.unix_millis("timestamp") <= latest_ms)
        return bucket_counts(views, ranked.period)

    return Job(rising, topics, ranked)


def _read(spark: SparkSession, log: TableLog) -> DataFrame:
    rows = read_files(spark, log)
    return rows.coalesce(1) if are_few(log.files()) else rows


def _ranking_json(rows: DataFrame) -> dict[str, Any]:
    """Return the rows of a ranking as JSON, by page."""
    found = rows.select("rank", "page", F.to_json(F.struct("*")).alias("json")).collect()
    return {row["page"]: row["json"] for row in sorted(found, key=lambda row: row["rank"])}
