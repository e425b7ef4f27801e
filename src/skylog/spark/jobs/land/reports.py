"""What has landed, told to the audit.

A report per commit and partition, published after the commit. Its id is made of the table's identity, the version and
the partition: what is published again, because nobody knows whether it was, counts once. Until a later commit has
written down that it was published, whoever opens the table publishes it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Final

from skylog.audit import AUDIT_TOPIC, Report, Tier
from skylog.client import Admin, Connection, Producer
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.spark.jobs.land.table import Table
from skylog.spark.kafka_settings import library_settings

logger = logging.getLogger(__name__)

_PATIENCE_MS: Final = 10_000


def landed_reports(table: Table) -> Iterator[Report]:
    """Those of a table that are not known to be published."""
    for commit in table.unreported:
        for part in commit.landed:
            yield Report(
                tier=Tier.LANDED,
                source=source_name(table),
                topic=table.topic,
                partition=part.partition,
                start_offset=part.start_offset,
                end_offset=part.end_offset,
                counts=part.counts,
                reported_at_ms=commit.time_ms,
                id=f"{table.table_id}-{commit.version}-{part.partition}",
            )


def source_name(table: Table) -> str:
    """Which table it is: a topic that lands once more, here or elsewhere, lands in another one."""
    return f"{table.path.parent.name}/{table.path.name}#{table.table_id[:8]}"


class LandedReports:
    """Publishes reports of tables. A cluster that is away is no failure: they are published after the next commit."""

    def __init__(self, bootstrap: str, kafka: Mapping[str, str]) -> None:
        settings = {key: value for key, value in library_settings(kafka).items() if key != "bootstrap.servers"}
        self._connection = Connection(bootstrap, settings)
        self._producer = Producer(bootstrap, config={**settings, "message.timeout.ms": _PATIENCE_MS})
        self._has_topic = False

    def publish(self, table: Table) -> None:
        reports = list(landed_reports(table))
        if not reports:
            return
        version = table.state.version
        try:
            self._make_topic()
            with self._producer.batch():
                for report in reports:
                    self._producer.send(AUDIT_TOPIC, report.encode())
        except SkylogError as error:
            logger.warning("%s: %d reports wait for the audit topic: %s", table.path, len(reports), error)
        else:
            table.reported(version)

    def close(self) -> None:
        self._producer.close()

    def _make_topic(self) -> None:
        if not self._has_topic:
            try:
                Admin(self._connection).create_topic(AUDIT_TOPIC, 1)
            except KafkaError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
            self._has_topic = True
