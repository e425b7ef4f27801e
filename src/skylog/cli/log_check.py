"""Checks logs on disk as a restart and a reader would meet them, and says what each finding means."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from skylog.cli.index_check import IndexProblemError, OffsetIndexCheck, TimeIndexCheck
from skylog.cli.segment_files import LogFiles, SegmentFile
from skylog.records import BatchHeader
from skylog.storage.scan import TornLogError


@dataclass(frozen=True, slots=True)
class Damage:
    """The first bad byte of a file, what is wrong there, and what follows from it."""

    file: Path
    position: int
    problem: str
    consequence: str


@dataclass(slots=True)
class Report:
    """What has been checked, and what was found."""

    segments: int = 0
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    damage: list[Damage] = field(default_factory=list)


def check_log(log: LogFiles, report: Report, advance: Callable[[int], None]) -> None:
    """Check every segment of `log` into `report`; `advance` is told of the bytes that were read."""
    end_offset: int | None = None
    for segment in log.segments:
        if end_offset is not None and segment.base_offset != end_offset:
            report.damage.append(_gap(log, segment, end_offset))
        with suppress(FileNotFoundError):  # retention of a running broker may have removed it meanwhile
            end_offset = _check_segment(log, segment, report, advance)
            report.segments += 1


def _check_segment(log: LogFiles, segment: SegmentFile, report: Report, advance: Callable[[int], None]) -> int | None:
    """Check one segment; the offset at which it ends, or None if it is damaged."""
    indexes = _IndexChecks(segment, report)  # read before the log, which is written first: no entry runs ahead of it
    position, end_offset = 0, segment.base_offset
    try:
        for _, start, header in segment.batches():
            indexes.see(start, header)
            position, end_offset = start + header.size_bytes, header.end_offset
            report.batches += 1
            report.records += header.record_count
            report.size_bytes += header.size_bytes
            advance(header.size_bytes)
    except TornLogError as torn:
        size_bytes = segment.path.stat().st_size
        advance(size_bytes - position)
        report.damage.append(
            Damage(segment.path, torn.position, str(torn), _torn_consequence(log, segment, end_offset, position))
        )
        return None
    indexes.finish(position, end_offset)
    return end_offset


class _IndexChecks:
    """Both indexes of one segment. Each is followed to its first problem, which goes into the report."""

    def __init__(self, segment: SegmentFile, report: Report) -> None:
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

    def see(self, position: int, header: BatchHeader) -> None:
        for path in tuple(self._checks):
            try:
                self._checks[path].see(position, header)
            except IndexProblemError as problem:
                del self._checks[path]
                self._add(path, problem)

    def finish(self, size_bytes: int, end_offset: int) -> None:
        """The whole log was sound: nothing may be left in the indexes, and a closed segment has both."""
        for path, check in self._checks.items():
            try:
                check.finish(size_bytes, end_offset)
            except IndexProblemError as problem:
                self._add(path, problem)
        if not self._segment.is_active and size_bytes:
            for path in self._missing:
                self._add(path, IndexProblemError(0, "the file is missing"))

    def _add(self, path: Path, problem: IndexProblemError) -> None:
        # A closed segment's indexes are sealed, and held against their seals before they are used.
        consequence = "no message is lost; the broker makes the indexes again from the log"
        if self._segment.is_active:
            consequence = (
                "no message is lost, but some may not be found; stop the broker, remove this file and start it again: "
                "the index is made from the log"
            )
        self._report.damage.append(Damage(path, problem.position, problem.problem, consequence))


def _is_checked_by_restart(log: LogFiles, offset: int) -> bool:
    return not log.stopped_cleanly and offset >= log.recovery_point


def _torn_consequence(log: LogFiles, segment: SegmentFile, offset: int, position: int) -> str:
    if _is_checked_by_restart(log, offset):
        later = sum(1 for each in log.segments if each.base_offset > segment.base_offset)
        more = f" and the {later} later segments" if later else ""
        return f"a restart cuts the file at byte {position}: offset {offset} and all after it{more} are dropped"
    known = "was stopped cleanly" if log.stopped_cleanly else f"is on disk up to offset {log.recovery_point}"
    return (
        f"a restart does not look here, as the log {known}; the broker refuses to serve offset {offset} "
        "(CORRUPT_MESSAGE) and nothing is cut"
    )


def _gap(log: LogFiles, segment: SegmentFile, end_offset: int) -> Damage:
    problem = f"the segment begins at offset {segment.base_offset}, the one before it ends at {end_offset}"
    if _is_checked_by_restart(log, end_offset):
        consequence = "a restart drops this segment and all later ones"
    elif segment.base_offset > end_offset:
        consequence = f"readers jump from offset {end_offset} to {segment.base_offset}"
    else:
        consequence = "offsets are there twice; readers meet them in the later segment"
    return Damage(segment.path, 0, problem, consequence)
