"""The job `feed`: delivers every post to the followers of its author, as records keyed by reader.

Spark keeps the readers of each author as state. A reader follows or does not, as the latest of their events says, by
event time. A post is delivered to those who follow its author when the job reads it and who began before it was
written. A follow and a post that are read together are therefore in the right order, whatever their partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from skylog.pipeline import Job, Topic, job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLLOW: Final = "user.follow"
UNFOLLOW: Final = "user.unfollow"
POST: Final = "post.create"


def feed(events: DataFrame) -> DataFrame:
    """Return a row for each reader of each post: the reader as `key`, `timestamp`, `post`, `author` and `title`.

    A reader's `user.follow` and `user.unfollow` have the attribute `author`, a `post.create` has `id` and `title`.
    """
    wanted = events.where(f"event IN ('{FOLLOW}', '{UNFOLLOW}', '{POST}')").selectExpr(
        f"IF(event = '{POST}', user.id, attributes['author']) AS author",
        "event",
        "user.id AS user",
        "attributes['id'] AS post",
        "attributes['title'] AS title",
        "unix_millis(timestamp) AS at_ms",
    )
    by_author = wanted.where("author IS NOT NULL AND user IS NOT NULL").groupBy("author")
    columns = "key STRING, at_ms BIGINT, post STRING, author STRING, title STRING"
    delivered = by_author.transformWithState(_Readers(), columns, "append", "none")
    return delivered.selectExpr("key", "timestamp_millis(at_ms) AS timestamp", "post", "author", "title")


class _Readers(StatefulProcessor):
    """The readers of an author. Each has the time of the latest follow or unfollow, and which of them it was."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._readers = handle.getMapState("readers", "reader STRING", "at_ms BIGINT, follows BOOLEAN")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for row in sorted(rows, key=lambda row: (row.at_ms, row.event == POST)):
            if row.event == POST:
                yield from self._deliver(row)
                continue
            known = self._readers.getValue((row.user,))
            if known is None or known[0] <= row.at_ms:
                self._readers.updateValue((row.user,), (row.at_ms, row.event == FOLLOW))

    def _deliver(self, post: Row) -> Iterator[Row]:
        for (reader,), (since_ms, follows) in self._readers.iterator():
            if follows and since_ms <= post.at_ms:
                yield Row(key=reader, at_ms=post.at_ms, post=post.post, author=post.author, title=post.title)

    def close(self) -> None:
        """Nothing to close."""


def feed_job(reads: Sequence[str], into: Topic) -> Job:
    """Return the job."""
    return job(reads, into, name="feed")(feed)
