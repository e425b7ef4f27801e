"""Checks logs on disk and explains what each problem means for a restart and for readers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from skylog.cli.log.aborted_check import EndedTransaction, TransactionHistory, check_aborted_index
from skylog.cli.log.index_check import IndexProblemError, OffsetIndexCheck, TimeIndexCheck
from skylog.cli.log.segment_files import LogFiles, SegmentFile
from skylog.records import BatchHeader
from skylog.storage.scan import TornLogError


@dataclass(frozen=True, slots=True)
class FileDamage:
    """The first bad byte of a file, the problem, and its consequence."""

    file: Path
    position: int
    problem: str
    consequence: str


@dataclass(slots=True)
class LogReport:
    """The totals of a check, and the damage found."""

    segments: int = 0
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    damage: list[FileDamage] = field(default_factory=list)


def check_log(log: LogFiles, report: LogReport, advance: Callable[[int], None]) -> None:
    """Check every segment of `log` and add the results to `report`. Calls `advance` with the number of bytes read."""
    end_offset: int | None = None
    history = TransactionHistory()
    for segment in log.segments:
        if end_offset is not None and segment.base_offset != end_offset:
            report.damage.append(_gap(log, segment, end_offset))
        with suppress(FileNotFoundError):  # the retention of a running broker may have deleted it
            end_offset = _check_segment(log, segment, report, advance, history)
            report.segments += 1


def _check_segment(
    log: LogFiles,
    segment: SegmentFile,
    report: LogReport,
    advance: Callable[[int], None],
    history: TransactionHistory,
) -> int | None:
    """Check one segment. Returns its end offset, or None if it is damaged."""
    # Read the indexes before the log. The broker writes the log first, so no entry is ahead of it.
    indexes = _IndexChecks(segment, report)
    position, end_offset = 0, segment.base_offset
    ended: list[EndedTransaction] = []
    try:
        for file, start, header in segment.batches():
            indexes.check(start, header)
            if (transaction := history.add(file, start, header)) is not None:
                ended.append(transaction)
            position, end_offset = start + header.size_bytes, header.end_offset
            report.batches += 1
            report.records += header.record_count
            report.size_bytes += header.size_bytes
            advance(header.size_bytes)
    except TornLogError as torn:
        size_bytes = segment.path.stat().st_size
        advance(size_bytes - position)
        report.damage.append(
            FileDamage(segment.path, torn.position, str(torn), _torn_consequence(log, segment, end_offset, position))
        )
        return None
    indexes.finish(position, end_offset)
    indexes.check_aborted(ended, position)
    return end_offset


class _IndexChecks:
    """Checks the indexes of one segment. Reports the first problem of each."""

    def __init__(self, segment: SegmentFile, report: LogReport) -> None:
        self._segment = segment
        self._report = report
        self._checks: dict[Path, OffsetIndexCheck | TimeIndexCheck] = {}
        self._missing: list[Path] = []
        offset_path, time_path = segment.path.with_suffix(".index"), segment.path.with_suffix(".timeindex")
        try:
            self._checks[offset_path] = OffsetIndexCheck(offset_path, segment.base_offset)
        except FileNotFoundError:
            self._missing.append(offset_path)
        try:
            self._checks[time_path] = TimeIndexCheck(time_path)
        except FileNotFoundError:
            self._missing.append(time_path)

    def check(self, position: int, header: BatchHeader) -> None:
        for path in tuple(self._checks):
            try:
                self._checks[path].check(position, header)
            except IndexProblemError as problem:
                del self._checks[path]
                self._add(path, problem)

    def finish(self, size_bytes: int, end_offset: int) -> None:
        """Call this if the whole log is sound: the indexes must have no entries left. A closed segment needs both."""
        for path, check in self._checks.items():
            try:
                check.finish(size_bytes, end_offset)
            except IndexProblemError as problem:
                self._add(path, problem)
        if not self._segment.is_active and size_bytes:
            for path in self._missing:
                self._add(path, IndexProblemError(0, "the file is missing"))

    def check_aborted(self, ended: list[EndedTransaction], size_bytes: int) -> None:
        """Check the index of aborted transactions. The active segment has its entries in memory."""
        if self._segment.is_active:
            return
        path = self._segment.path.with_suffix(".txnindex")
        try:
            check_aborted_index(path, ended, size_bytes)
        except IndexProblemError as problem:
            consequence = (
                "no message is lost, but consumers may get messages of aborted transactions or miss committed ones; "
                "stop the broker, delete this file and the .index of the segment, and restart: the broker rebuilds both"
            )
            self._report.damage.append(FileDamage(path, problem.position, problem.problem, consequence))

    def _add(self, path: Path, problem: IndexProblemError) -> None:
        # The indexes of a closed segment are sealed. The broker checks the seals before it uses them.
        consequence = "no message is lost; the broker rebuilds the indexes from the log"
        if self._segment.is_active:
            consequence = (
                "no message is lost, but some may not be found; stop the broker, delete this file and restart: "
                "the broker rebuilds the index from the log"
            )
        self._report.damage.append(FileDamage(path, problem.position, problem.problem, consequence))


def _is_checked_by_restart(log: LogFiles, offset: int) -> bool:
    return not log.stopped_cleanly and offset >= log.recovery_point


def _torn_consequence(log: LogFiles, segment: SegmentFile, offset: int, position: int) -> str:
    if _is_checked_by_restart(log, offset):
        later = sum(1 for each in log.segments if each.base_offset > segment.base_offset)
        more = f" and the {later} later segments" if later else ""
        return f"a restart truncates the file at byte {position}: offset {offset} and all later ones{more} are lost"
    known = "was closed cleanly" if log.stopped_cleanly else f"is on disk up to offset {log.recovery_point}"
    return (
        f"a restart does not check this part, because the log {known}; the broker does not serve offset {offset} "
        "(CORRUPT_MESSAGE), and nothing is truncated"
    )


def _gap(log: LogFiles, segment: SegmentFile, end_offset: int) -> FileDamage:
    problem = f"the segment starts at offset {segment.base_offset}, but the previous one ends at {end_offset}"
    if _is_checked_by_restart(log, end_offset):
        consequence = "a restart deletes this segment and all later ones"
    elif segment.base_offset > end_offset:
        consequence = f"readers skip from offset {end_offset} to {segment.base_offset}"
    else:
        consequence = "offsets are duplicated; readers get those of the later segment"
    return FileDamage(segment.path, 0, problem, consequence)
