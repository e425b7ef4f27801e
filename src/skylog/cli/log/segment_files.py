"""Finds segment files on disk and reads them without a broker. Opens them read-only and takes no locks.

A broker may be running on the same files: an active segment can grow while it is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from skylog.errors import SkylogError
from skylog.model import TopicPartition
from skylog.records import BatchHeader
from skylog.storage.checkpoint import RECOVERY_POINTS, read_checkpoint
from skylog.storage.files import LogFile
from skylog.storage.log_dir import CLEAN_SHUTDOWN, DELETED_SUFFIX, log_size
from skylog.storage.scan import TornLogError, scan
from skylog.storage.segment import segment_bases, segment_path


class ReadOnlyFile(LogFile):
    """A log file opened read-only."""

    __slots__ = ()

    def __init__(self, path: Path) -> None:
        self._fd = -1
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size_bytes = os.fstat(self._fd).st_size


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A `.log` file. `next_base_offset` is the start of the next one. It is None for the last, which may be active."""

    path: Path
    base_offset: int
    next_base_offset: int | None

    @property
    def is_active(self) -> bool:
        return self.next_base_offset is None

    def batches(self) -> Iterator[tuple[ReadOnlyFile, int, BatchHeader]]:
        """Yield file, position and header of each sound batch. Raises TornLogError at the first bad byte."""
        file = ReadOnlyFile(self.path)
        end, due_offset = 0, self.base_offset
        while True:
            try:
                for position, header in scan(file, end, due_offset, self.next_base_offset):
                    yield file, position, header
                    end, due_offset = position + header.size_bytes, header.end_offset
                return
            except TornLogError:
                # A broker may have been appending when the size was read. Then the file is larger now.
                newer = ReadOnlyFile(self.path)
                if not self.is_active or newer.size_bytes == file.size_bytes:
                    raise
                file = newer


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The segments of one partition to inspect, and how far a restart would check their log.

    A restart checks everything from `recovery_point` on; after a clean stop it checks nothing.
    """

    directory: Path
    segments: tuple[SegmentFile, ...]
    recovery_point: int
    stopped_cleanly: bool


def find_logs(paths: Iterable[Path]) -> list[LogFiles]:
    """Find logs at `paths`: segment files, partition directories or data directories. Raises SkylogError for others."""
    logs = []
    for path in paths:
        if path.is_dir():
            logs += _find_in_directory(path)
        elif not path.exists():
            raise SkylogError(f"{path} does not exist")
        elif path.suffix == ".log" and path.stem.isdecimal():
            logs.append(_read_log(path.parent, only=path))
        else:
            raise SkylogError(
                f"{path} is not a segment: expected a .log file (its indexes are included) or a directory"
            )
    return logs


def _find_in_directory(path: Path) -> list[LogFiles]:
    if segment_bases(path):
        return [_read_log(path)]
    found = [
        _read_log(child)
        for child in sorted(path.iterdir())
        if child.is_dir() and not child.name.endswith(DELETED_SUFFIX) and segment_bases(child)
    ]
    if not found:
        raise SkylogError(f"no logs found in {path}: expected a data directory, a partition directory or .log files")
    return found


def _read_log(directory: Path, only: Path | None = None) -> LogFiles:
    bases = segment_bases(directory)
    segments = tuple(
        SegmentFile(segment_path(directory, base), base, following) for base, following in zip_longest(bases, bases[1:])
    )
    topic, _, number = directory.absolute().name.rpartition("-")
    recovery_point, stopped_cleanly = 0, False
    if topic and number.isdecimal():
        name, data_dir = TopicPartition(topic, int(number)), directory.absolute().parent
        recovery_point = read_checkpoint(data_dir / RECOVERY_POINTS).get(name, 0)
        closed_sizes = read_checkpoint(data_dir / CLEAN_SHUTDOWN)
        stopped_cleanly = name in closed_sizes and closed_sizes[name] == log_size(directory)
    if only is not None:
        segments = tuple(segment for segment in segments if segment.path.name == only.name)
    return LogFiles(directory, segments, recovery_point, stopped_cleanly)
