"""Reads the reports of a cluster's audit, from the audit topic and from the commits of consumer groups.

The command line and the console share it. It needs both `client` and `audit`, which do not import each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from skylog.audit import AUDIT_TOPIC, NoAuditTopicError, Report, ReportError, Tier
from skylog.audit.books import Books
from skylog.audit.consumer_tier import pending_reports
from skylog.audit.ledger import check_report
from skylog.client import Admin, Connection, ConsumerGroups, OffsetRange, PartitionReader
from skylog.model import TopicPartition

OnProgress = Callable[[int, int], None]
"""Called with the number of reports read so far and the total."""


class AuditTopic:
    """The reports in the audit topic. `refresh` reads the new ones.

    `foreign_count` is the number of messages that are not reports. `begins_ms` is the time of the oldest report if
    older ones are missing, because retention deleted them or there are more than `max_reports`; otherwise 0. Windows
    that begin earlier cannot be judged. `mirrors` has the sources under which `add_mirror` counts.
    """

    def __init__(self, bootstrap: str | Connection, max_reports: int | None = None) -> None:
        self.foreign_count = 0
        self.begins_ms = 0
        self.mirrors: list[str] = []
        self._max_reports = max_reports
        self._connection = bootstrap if isinstance(bootstrap, Connection) else Connection(bootstrap)
        self._admin = Admin(self._connection)
        self._groups = ConsumerGroups(self._connection)
        self._reports: list[Report] = []
        self._pending: list[Report] = []
        self._mirrored: list[Report] = []
        self._read_up_to: dict[TopicPartition, int] = {}

    def refresh(self, on_progress: OnProgress = lambda done, total: None) -> None:
        """Raises NoAuditTopicError."""
        topic = next((each for each in self._admin.list_topics() if each.name == AUDIT_TOPIC), None)
        if topic is None:
            raise NoAuditTopicError(self._connection.bootstrap)
        # A report is removed from the commits after it is stored in the topic, so the commits are read first.
        self._pending = [
            report
            for commits in self._groups.committed_metadata().values()
            for metadata in commits.values()
            for report in pending_reports(metadata)
        ]
        ranges = {}
        for key, offsets in self._admin.offset_ranges(topic.topic_partitions).items():
            start_offset = max(offsets.start_offset, self._read_up_to.get(key, 0))
            if self._max_reports is not None:
                start_offset = max(start_offset, offsets.end_offset - self._max_reports)
            ranges[key] = OffsetRange(start_offset, offsets.end_offset)
        cut = {key for key, offsets in ranges.items() if offsets.start_offset > self._read_up_to.get(key, 0)}
        for key, report in self._read({key: each for key, each in ranges.items() if len(each)}, on_progress):
            if key in cut:
                cut.remove(key)
                self.begins_ms = max(self.begins_ms, report.reported_at_ms)
            self._reports.append(report)
        self._read_up_to = {key: offsets.end_offset for key, offsets in ranges.items()}
        self._drop_oldest()

    def add_mirror(self, mirror: AuditTopic, prefix: str, source: str) -> None:
        """Count what a mirror of this cluster has stored as landed there. Its topics have a prefix there.

        The other topics of that cluster do not count.
        """
        own = {report.topic for report in self._reports}
        self._mirrored = [each for each in _as_landed(mirror._reports, prefix, source) if each.topic in own]
        self.mirrors = [source]
        self.begins_ms = max(self.begins_ms, mirror.begins_ms)

    def books(self, window_ms: int) -> Books:
        books = Books(window_ms)
        for report in self._mirrored:
            books.add(report)
        for report in self._reports:
            books.add(report)
        for report in _not_replaced(self._pending, self._reports):
            books.add(report)
        return books

    def _drop_oldest(self) -> None:
        """Drop the oldest reports beyond the limit."""
        if self._max_reports is not None and len(self._reports) > self._max_reports:
            del self._reports[: -self._max_reports]
            self.begins_ms = max(self.begins_ms, self._reports[0].reported_at_ms)

    def _read(
        self, ranges: dict[TopicPartition, OffsetRange], on_progress: OnProgress
    ) -> Iterator[tuple[TopicPartition, Report]]:
        if not ranges:
            return
        total, done = sum(map(len, ranges.values())), 0
        reader = PartitionReader(self._connection, {key: offsets.start_offset for key, offsets in ranges.items()})
        try:
            for messages in reader.read_to_end(ranges):
                done += len(messages)
                on_progress(done, total)
                for message in messages:
                    report = _decode(message.value)
                    if report is None:
                        self.foreign_count += 1
                    else:
                        yield TopicPartition(message.topic, message.partition), report
        finally:
            reader.close()


def _decode(value: bytes | None) -> Report | None:
    try:
        report = Report.decode(value or b"")
        check_report(report)
    except ReportError:
        return None
    return report


def _as_landed(reports: Iterable[Report], prefix: str, source: str) -> list[Report]:
    """Return the stored reports of topics with a prefix, without the replaced ones, as those of a table.

    A stored report replaces earlier ones of its partition that start at its offset or later; landed ones add up.
    """
    kept: dict[tuple[str, int | None], list[Report]] = {}
    for report in reports:
        if report.tier is Tier.STORED and report.topic.startswith(prefix):
            rows = kept.setdefault((report.topic, report.partition), [])
            rows[:] = [each for each in rows if (each.start_offset or 0) < (report.start_offset or 0)]
            rows.append(report)
    return [
        replace(report, tier=Tier.LANDED, source=source, topic=report.topic.removeprefix(prefix), topic_id=None)
        for rows in kept.values()
        for report in rows
    ]


def _not_replaced(pending: Sequence[Report], published: Iterable[Report]) -> Iterator[Report]:
    """Pending reports, without those that a later, published report contains.

    A consumer merges reports that it could not publish into a later one, which then covers all their offsets.
    """
    later: dict[tuple[str, str, int | None], list[Report]] = {_place(report): [] for report in pending}
    for report in published:
        if report.tier is Tier.CONSUMED and (place := _place(report)) in later:
            later[place].append(report)
    for report in pending:
        if not any(_holds(other, report) for other in later[_place(report)]):
            yield report


def _place(report: Report) -> tuple[str, str, int | None]:
    return report.source, report.topic, report.partition


def _holds(whole: Report, part: Report) -> bool:
    return (
        whole.reported_at_ms >= part.reported_at_ms
        and (whole.start_offset or 0) <= (part.start_offset or 0)
        and (part.end_offset or 0) <= (whole.end_offset or 0)
    )
