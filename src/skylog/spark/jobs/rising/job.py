"""The job: counts and ranking are versions of one table, with the offsets; the ranking goes on to a topic.

The topic is compacted and its key is the page, so what it holds in the end is the ranking. A version is committed first
and published then: the pages of its ranking, and a tombstone for each page that only the version before had. A job that
starts publishes the newest version again, so what a crash kept from the topic arrives.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from pyspark.sql import functions as F  # noqa: N812  # as everybody calls them

from skylog.client import Producer
from skylog.spark.jobs.increments import Increment, Offsets
from skylog.spark.jobs.parquet import read_parquet, write_parquet
from skylog.spark.jobs.rising.ranking import (
    PAGE,
    SMOOTHING,
    TOP,
    VIEW,
    Period,
    bucket_counts,
    merge_counts,
    page_views,
    ranking,
)
from skylog.spark.jobs.target_topic import ensure_topic
from skylog.spark.jobs.versioned_table import TableError, Version, VersionedTable, part_path, version_before

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

MAX_AHEAD_MS: Final = 600_000
"""Events from further in the future are left out: one wrong clock would push all others out of the period."""
_COUNTS: Final = "counts"


class RankingPublisher:
    """Writes rankings to a compacted topic, which it makes where there is none."""

    def __init__(self, bootstrap: str, topic: str, partitions: int | None = None) -> None:
        if ensure_topic(bootstrap, topic, partitions, {"cleanup.policy": "compact"}):
            logger.info("created topic '%s', compacted", topic)
        self._topic = topic
        self._producer = Producer(bootstrap)

    def publish(self, pages: Mapping[str, str], before: Iterable[str]) -> None:
        """Send the JSON of each of `pages`, and tombstones for those of `before` not among them.

        Raises DeliveryError.
        """
        with self._producer.batch():
            for page, row in pages.items():
                self._producer.send(self._topic, row.encode(), page)
            for page in sorted(set(before) - pages.keys()):
                self._producer.send(self._topic, None, page)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._producer.close()


class Rising:
    """Keeps `table`, and a topic if there is a `publisher`, at the pages that are rising.

    with VersionedTable(path) as table:
        job = Rising(table, period=Period())
        run_increments(job, Increments(bootstrap, ["events"]), spark, CONTINUOUS, stop, report)
    """

    name = "rising"

    def __init__(
        self,
        table: VersionedTable,
        *,
        period: Period | None = None,
        page: str = PAGE,
        event: str = VIEW,
        top: int = TOP,
        smoothing: float = SMOOTHING,
        publisher: RankingPublisher | None = None,
    ) -> None:
        self._table = table
        self._period = period or Period()
        self._page, self._event = page, event
        self._top, self._smoothing = top, smoothing
        self._publisher = publisher

    def done(self) -> Offsets | None:
        """Publishes the newest version: the job that committed it may not have come to that."""
        version = self._table.version
        if version is None:
            return None
        if version.facts.get("bucket_ms") != self._period.bucket_ms:
            raise TableError(
                f"{self._table.path} counts in buckets of {version.facts.get('bucket_ms')} ms, not of "
                f"{self._period.bucket_ms}: go on so, or name another table"
            )
        self._publish(version)
        return version.offsets

    def apply(self, records: DataFrame, increment: Increment) -> None:
        spark, before = records.sparkSession, self._table.version
        self._table.check_follows(increment.start)
        latest_ms = time.time_ns() // 1_000_000 + MAX_AHEAD_MS
        views = page_views(records, self._page, self._event).where(F.unix_millis("timestamp") <= latest_ms)
        counts = bucket_counts(views, self._period)
        if before is not None:
            counts = merge_counts(self._kept_counts(spark, before), counts)
        with self._table.draft() as draft:
            write_parquet(counts, draft.part(_COUNTS))
            counts = read_parquet(spark, draft.part(_COUNTS))
            newest = counts.agg(F.max("newest_ms")).first()
            write_parquet(ranking(counts, self._period, self._top, self._smoothing), draft.rows)
            facts = {
                "bucket_ms": self._period.bucket_ms,
                "newest_ms": newest and newest[0],
                "ranking": _ranking_json(read_parquet(spark, draft.rows)),
            }
            version = self._table.commit(draft, increment.end, facts)
        self._publish(version)

    def _kept_counts(self, spark: SparkSession, version: Version) -> DataFrame:
        """The counts of a version, without the buckets that had left the period by then."""
        counts = read_parquet(spark, part_path(version, _COUNTS))
        newest_ms = version.facts["newest_ms"]
        return counts if newest_ms is None else counts.where(F.col("bucket_ms") >= self._period.start_of(newest_ms))

    def _publish(self, version: Version) -> None:
        if self._publisher is not None:
            before = version_before(version)
            self._publisher.publish(version.facts["ranking"], before.facts["ranking"] if before is not None else ())


def _ranking_json(rows: DataFrame) -> dict[str, str]:
    """Each page of a ranking with its row as JSON."""
    found = rows.orderBy("rank").select("page", F.to_json(F.struct("*")).alias("json")).collect()
    return {row["page"]: row["json"] for row in found}
