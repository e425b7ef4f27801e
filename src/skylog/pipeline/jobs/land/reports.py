"""Publishes the counts of commits to the audit.

A commit has its counts in its metadata, and an id. There is a report per commit and partition, published after the
commit. Its id consists of table id, commit id and partition, so a report that is published twice counts once. A later
commit records which one was reported last. Until then, every process that opens the table publishes its counts again.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from skylog.audit import AUDIT_TOPIC, Report, Tier
from skylog.errors import SkylogError
from skylog.pipeline.cluster import Cluster
from skylog.pipeline.delta.table_log import TableLog
from skylog.pipeline.jobs.land.tallies import CommittedRange

logger = logging.getLogger(__name__)

LANDED: Final = "skylog.landed"
_PATIENCE_MS: Final = 10_000
_FEW: Final = 16


@dataclass(frozen=True)
class LandedCommit:
    """The counts of a commit."""

    id: str
    time_ms: int
    ranges: Sequence[CommittedRange]
    reported: str | None


def landed_facts(ranges: Sequence[CommittedRange], reported: str | None) -> dict[str, str]:
    """Return the metadata of a commit. `reported` is the id of the last commit whose counts are published."""
    found = {"id": uuid.uuid4().hex[:12], "ranges": [each.to_json() for each in ranges], "reported": reported}
    return {LANDED: json.dumps(found)}


def unreported(table: TableLog) -> list[LandedCommit]:
    """Return the commits whose counts may not be published yet, oldest first."""
    limit = _FEW
    while True:
        commits, is_all = _landed(table, limit)
        last = commits[0].reported if commits else None
        found = [each.id for each in commits]
        if last in found:
            return commits[: found.index(last)][::-1] if last is not None else commits[::-1]
        if is_all:
            return commits[::-1]
        limit *= 8  # other commits, such as those of a merge, are in between


def _landed(table: TableLog, limit: int) -> tuple[list[LandedCommit], bool]:
    """Return the newest commits with counts, newest first, and whether these are all."""
    entries = list(table.history(limit))
    found = []
    for entry in entries:
        text = entry.facts.get(LANDED)
        if text is not None:
            landed = json.loads(text)
            ranges = [CommittedRange.from_json(each) for each in landed["ranges"]]
            found.append(LandedCommit(landed["id"], entry.time_ms, ranges, landed["reported"]))
    return found, len(entries) < limit


def reports(topic: str, table: TableLog, commits: Sequence[LandedCommit]) -> Iterator[Report]:
    for commit in commits:
        for part in commit.ranges:
            yield Report(
                tier=Tier.LANDED,
                source=source_name(table),
                topic=topic,
                partition=part.partition,
                start_offset=part.start_offset,
                end_offset=part.end_offset,
                counts=part.counts,
                reported_at_ms=commit.time_ms,
                id=f"{table.table_id}-{commit.id}-{part.partition}",
            )


def source_name(table: TableLog) -> str:
    """Return the table's name for the audit. It has the table id, because a table that is created again is another."""
    *_, warehouse, name = table.storage.uri.split("/")
    return f"{warehouse}/{name}#{table.table_id[:8]}"


class AuditReporter:
    """Publishes reports of tables. If the cluster is unreachable, they are published after the next commit."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._producer = cluster.producer({"message.timeout.ms": _PATIENCE_MS})
        self._has_topic = False

    def publish(self, topic: str, table: TableLog, commits: Sequence[LandedCommit]) -> bool:
        """Publish the counts of commits. Return whether they are published."""
        found = list(reports(topic, table, commits))
        try:
            if not self._has_topic:
                self._cluster.ensure_topic(AUDIT_TOPIC, 1)
                self._has_topic = True
            with self._producer.batch():
                for report in found:
                    self._producer.send(AUDIT_TOPIC, report.encode())
        except SkylogError as error:
            where = table.storage.uri
            logger.warning("%s: cannot publish %d audit reports; retrying later: %s", where, len(found), error)
            return False
        return True

    def close(self) -> None:
        self._producer.close()
