"""The reports of a cluster's audit: those of its topic, and those that wait in the commits of consumer groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from skylog.audit import AUDIT_TOPIC, NoAuditTopicError, Report, ReportError, Tier
from skylog.audit.books import Books
from skylog.audit.consumer_tier import pending_reports
from skylog.audit.ledger import check_report
from skylog.client import Admin, Connection, ConsumerGroups, OffsetRange, PartitionReader
from skylog.model import TopicPartition

Progress = Callable[[int, int], None]
"""Told while reports are read: how many of how many."""


class AuditTopic:
    """What is in the audit topic so far; `refresh` reads on from where it was.

    `foreign_count` messages of it are no reports. `begins_ms` is the time of its oldest report once retention has
    deleted some, or there have been more than `max_reports`, of which the oldest are left out: windows that begin
    earlier cannot be judged any more.
    """

    def __init__(self, bootstrap: str | Connection, max_reports: int | None = None) -> None:
        self.foreign_count = 0
        self.begins_ms = 0
        self._max_reports = max_reports
        self._connection = bootstrap if isinstance(bootstrap, Connection) else Connection(bootstrap)
        self._admin = Admin(self._connection)
        self._groups = ConsumerGroups(self._connection)
        self._reports: list[Report] = []
        self._pending: list[Report] = []
        self._read_up_to: dict[TopicPartition, int] = {}

    def refresh(self, progress: Progress = lambda done, total: None) -> None:
        """Raises NoAuditTopicError."""
        topic = next((each for each in self._admin.list_topics() if each.name == AUDIT_TOPIC), None)
        if topic is None:
            raise NoAuditTopicError(self._connection.bootstrap)
        # A report leaves the commits after it has been stored in the topic, so they are read before the topic's end is.
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
        for key, report in self._read({key: each for key, each in ranges.items() if len(each)}, progress):
            if key in cut:
                cut.remove(key)
                self.begins_ms = max(self.begins_ms, report.reported_at_ms)
            self._reports.append(report)
        self._read_up_to = {key: offsets.end_offset for key, offsets in ranges.items()}
        self._forget()

    def books(self, window_ms: int) -> Books:
        books = Books(window_ms)
        for report in self._reports:
            books.add(report)
        for report in _not_replaced(self._pending, self._reports):
            books.add(report)
        return books

    def _forget(self) -> None:
        """The oldest reports beyond the limit."""
        if self._max_reports is not None and len(self._reports) > self._max_reports:
            del self._reports[: -self._max_reports]
            self.begins_ms = max(self.begins_ms, self._reports[0].reported_at_ms)

    def _read(
        self, ranges: dict[TopicPartition, OffsetRange], progress: Progress
    ) -> Iterator[tuple[TopicPartition, Report]]:
        if not ranges:
            return
        total, done = sum(map(len, ranges.values())), 0
        reader = PartitionReader(self._connection, {key: offsets.start_offset for key, offsets in ranges.items()})
        try:
            for messages in reader.read_to_end(ranges):
                done += len(messages)
                progress(done, total)
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


def _not_replaced(pending: Sequence[Report], published: Iterable[Report]) -> Iterator[Report]:
    """Pending reports without those that a later one, now published, was put together from.

    A consumer does that with reports that it could not publish yet. The later one then has all their offsets.
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
