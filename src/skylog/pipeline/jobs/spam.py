"""The job `spam`: flags comments, each with the reasons.

    phrase    the text has one of the known phrases
    links     the text has more links than allowed
    burst     the user has written too many comments in a short time, by event time
    repeat    the user has written the same text before, within that time

The first two look at the comment alone. For the others, Spark keeps the times and the hashes of a user's last comments.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Row
from pyspark.sql import functions as F  # noqa: N812 - Spark's convention
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from skylog.pipeline import Job, Topic, job

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COMMENT: Final = "comment.create"
PHRASES: Final = ("free money", "work from home", "click here", "limited offer", "casino bonus", "lose weight fast")

_LINK: Final = r"https?://|www\."


@dataclass(frozen=True)
class SpamRules:
    """The phrases, and the largest numbers of links in a comment and of comments within `window_s` that are allowed."""

    phrases: Sequence[str] = PHRASES
    links: int = 2
    comments: int = 5
    window_s: float = 60.0


def spam(events: DataFrame, rules: SpamRules | None = None) -> DataFrame:
    """Return the flagged comments: their id as `key`, `timestamp`, `user`, `reasons` and `body`.

    A `comment.create` has the attributes `id` and `body`.
    """
    rules = rules or SpamRules()
    comments = events.where(f"event = '{COMMENT}' AND attributes['id'] IS NOT NULL").selectExpr(
        "attributes['id'] AS key",
        "user.id AS user",
        "coalesce(attributes['body'], '') AS body",
        "unix_millis(timestamp) AS at_ms",
    )
    judged = comments.withColumn("reasons", F.array_compact(F.array(_has_phrase(rules), _has_links(rules))))
    columns = "key STRING, at_ms BIGINT, user STRING, reasons ARRAY<STRING>, body STRING"
    flagged = judged.groupBy("user").transformWithState(_RecentComments(rules), columns, "append", "none")
    return flagged.selectExpr("key", "timestamp_millis(at_ms) AS timestamp", "user", "reasons", "body")


def _has_phrase(rules: SpamRules) -> Column:
    words = [r"\s+".join(map(re.escape, phrase.split())) for phrase in rules.phrases]
    found = F.col("body").rlike(rf"(?i)\b({'|'.join(words)})\b") if words else F.lit(False)
    return F.when(found, "phrase")


def _has_links(rules: SpamRules) -> Column:
    return F.when(F.regexp_count("body", F.lit(f"(?i){_LINK}")) > rules.links, "links")


class _RecentComments(StatefulProcessor):
    """The comments of a user within the window: times, and hashes of their texts."""

    def __init__(self, rules: SpamRules) -> None:
        self._most = rules.comments
        self._window_ms = int(rules.window_s * 1000)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._recent = handle.getListState("recent", "at_ms BIGINT, text BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        (user,) = key
        recent: list[tuple[int, int]] = [(at_ms, text) for at_ms, text in self._recent.get()] if user else []
        for row in sorted(rows, key=lambda row: row.at_ms):
            reasons = list(row.reasons)
            if user:  # comments without a user have nothing in common
                text = zlib.crc32(" ".join(row.body.lower().split()).encode())
                near = [other for at_ms, other in recent if row.at_ms - self._window_ms < at_ms <= row.at_ms]
                reasons += ["burst"] * (len(near) >= self._most) + ["repeat"] * (text in near)
                recent.append((row.at_ms, text))
            if reasons:
                yield Row(key=row.key, at_ms=row.at_ms, user=user, reasons=reasons, body=row.body)
        if recent:
            oldest_ms = max(recent)[0] - self._window_ms
            self._recent.put([(at_ms, text) for at_ms, text in recent if at_ms > oldest_ms])

    def close(self) -> None:
        """Nothing to close."""


def spam_job(reads: Sequence[str], into: Topic, rules: SpamRules | None = None) -> Job:
    """Return the job."""

    @job(reads, into, name="spam")
    def flagged(events: DataFrame) -> DataFrame:
        return spam(events, rules)

    return flagged
