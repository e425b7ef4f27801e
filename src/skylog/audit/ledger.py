"""Adds up the reports of one topic by tier, source and window. `balance_sheet.py` compares them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from skylog.audit.report import Count, Report, ReportError, Tier

Windows = tuple[int, int]
"""The first and the last window that a count covers, numbered since 1970."""


class WindowTally:
    """Messages and bytes by window, or by span of windows if the exact window is unknown."""

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self.messages: dict[Windows, int] = defaultdict(int)
        self.size_bytes: dict[Windows, int] = defaultdict(int)
        self.uncertain: dict[Windows, int] = defaultdict(int)

    def add(self, count: Count) -> None:
        windows = count.start_ms // self._window_ms, (count.end_ms - 1) // self._window_ms
        if count.messages:
            self.messages[windows] += count.messages
            self.size_bytes[windows] += count.size_bytes
        if count.uncertain:
            self.uncertain[windows] += count.uncertain

    @property
    def first(self) -> Windows | None:
        """The earliest windows with a count."""
        return min((*self.messages, *self.uncertain), default=None)


@dataclass(slots=True)
class ReaderTally:
    """The counts of one group or table, and the offsets where it started and ended in each partition."""

    tally: WindowTally
    start_offsets: dict[int, int] = field(default_factory=dict)
    end_offsets: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredRange:
    """A broker's report of a partition, from `start_offset` up to `end_offset`, which is exclusive."""

    start_offset: int
    end_offset: int
    report: Report


def check_report(report: Report) -> None:
    """Raise ReportError for an inconsistent report."""
    for count in report.counts:
        if count.start_ms >= count.end_ms or min(count.messages, count.size_bytes, count.uncertain) < 0:
            raise ReportError(f"report {report.id} of topic '{report.topic}' has an invalid count: {count}")
    if report.tier is not Tier.PRODUCED and None in (report.partition, report.start_offset, report.end_offset):
        raise ReportError(f"report {report.id} of topic '{report.topic}' lacks the offsets that it counted")


class Ledger:
    """The reports of one topic.

    A broker that restarts after a crash counts again from the start of one of its reports, and its log may be shorter
    than before. So a stored report replaces all earlier ones of its partition with the same or a larger start offset.
    The ranges of a partition are therefore always sorted by start offset.
    """

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self.produced: WindowTally | None = None
        self.ranges: dict[int, list[StoredRange]] = {}
        self.readers: dict[tuple[Tier, str], ReaderTally] = {}

    def add(self, report: Report) -> None:
        """Add a report. Raises what `check_report` raises, and then changes nothing."""
        check_report(report)
        partition, start_offset, end_offset = report.partition, report.start_offset, report.end_offset
        if report.tier is Tier.PRODUCED or partition is None or start_offset is None or end_offset is None:
            self.produced = self.produced or WindowTally(self._window_ms)
            self._count(self.produced, report)
        elif report.tier is Tier.STORED:
            ranges = self.ranges.setdefault(partition, [])
            while ranges and ranges[-1].start_offset >= start_offset:
                ranges.pop()
            ranges.append(StoredRange(start_offset, end_offset, report))
        else:
            reader = self.readers.setdefault((report.tier, report.source), self.new_reader())
            self._count(reader.tally, report)
            reader.start_offsets[partition] = min(start_offset, reader.start_offsets.get(partition, start_offset))
            reader.end_offsets[partition] = max(end_offset, reader.end_offsets.get(partition, end_offset))

    def new_reader(self) -> ReaderTally:
        return ReaderTally(WindowTally(self._window_ms))

    def stored(self) -> WindowTally | None:
        """Add up the counts of brokers; None if there are none."""
        if not self.ranges:
            return None
        tally = WindowTally(self._window_ms)
        for ranges in self.ranges.values():
            for each in ranges:
                self._count(tally, each.report)
        return tally

    def is_from_the_middle(self, reader: ReaderTally) -> bool:
        """Return whether the reader started after the first known message, so that it never read the earlier ones."""
        for partition, start_offset in reader.start_offsets.items():
            ranges = self.ranges.get(partition)
            if ranges is None and self.ranges:
                continue  # nothing is known of this partition
            if start_offset > (ranges[0].start_offset if ranges else 0):
                return True
        return False

    def unread(self, reader: ReaderTally) -> WindowTally:
        """Add up the stored messages that the reader may not have reached: all ranges that end after its offset."""
        tally = WindowTally(self._window_ms)
        for partition, ranges in self.ranges.items():
            for each in _beyond(ranges, reader.end_offsets.get(partition, 0)):
                self._count(tally, each.report)
        return tally

    @staticmethod
    def _count(tally: WindowTally, report: Report) -> None:
        for count in report.counts:
            tally.add(count)


def _beyond(ranges: list[StoredRange], end_offset: int) -> Iterator[StoredRange]:
    for each in reversed(ranges):
        if each.end_offset <= end_offset:
            return
        yield each
