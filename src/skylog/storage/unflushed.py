"""Tracks what has changed in a log since its last flush began, and turns it into a `FlushTask`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from skylog.storage.files import LogFile
from skylog.storage.flush_task import FlushTask
from skylog.storage.folder_name import FolderName
from skylog.storage.leader_epochs import LeaderEpochs
from skylog.storage.producer_snapshot import Snapshot
from skylog.storage.segment import Segment


class Unflushed:
    """The changes to a log since its last flush began, which may still be running. Each flush starts a new object.

    `messages` counts the appended messages; the first of them was appended at `since_ms`. `is_due` if one of them may
    be acknowledged only after the next flush. `snapshots` are the producer snapshots of closed segments.
    """

    __slots__ = ("_changed_directories", "_new_files", "_truncated_to", "is_due", "messages", "since_ms", "snapshots")

    def __init__(self, changed_directories: Sequence[Path] = (), new_files: Sequence[Path] = ()) -> None:
        self.messages = 0
        self.is_due = False
        self.since_ms: int | None = None
        self.snapshots: list[Snapshot] = []
        self._changed_directories = list(changed_directories)
        self._new_files = list(new_files)
        self._truncated_to: int | None = None

    def add_roll(self, directory: Path, snapshot: Snapshot) -> None:
        """Note that a segment was created in `directory`, and the state of producers at its start."""
        self.snapshots.append(snapshot)
        self._note_change(directory)

    def _note_change(self, directory: Path) -> None:
        if directory not in self._changed_directories:
            self._changed_directories.append(directory)

    def truncate_to(self, offset: int, directory: Path) -> None:
        """Note that the log in `directory` was truncated to `offset`, perhaps during a flush, and has another file."""
        self._truncated_to = offset if self._truncated_to is None else min(offset, self._truncated_to)
        self.snapshots = []  # their segments are dropped, or can be read again
        self._note_change(directory)

    def first_offset(self, recovery_point: int) -> int:
        """Return an offset of the first file to sync: one that was cut is shorter in memory only, until then."""
        truncated_to = self._truncated_to
        return recovery_point if truncated_to is None else min(recovery_point, max(truncated_to - 1, 0))

    def flush_task(
        self, end_offset: int, segments: Sequence[Segment], epochs: LeaderEpochs, folder_name: FolderName
    ) -> FlushTask:
        """Return the task that makes the log durable up to `end_offset`.

        `segments` are those with unflushed batches, the active one last. Never raises: if a file cannot be opened, the
        task raises the error when it runs.
        """
        files: list[LogFile] = []
        error = None
        try:
            files = [segment.file for segment in segments]
        except OSError as failed:
            error = failed
        side_files = [*self._new_files, *([epochs.path] if epochs.unsynced else [])]
        epochs.unsynced = False
        return FlushTask(
            end_offset,
            files,
            list(segments[:-1]),
            side_files,
            self._changed_directories,
            self.snapshots,
            folder_name,
            error,
        )

    def flushed_to(self, task: FlushTask) -> int:
        """Return the offset up to which the log is durable after `task`, the flush that has just ended."""
        return task.end_offset if self._truncated_to is None else min(task.end_offset, self._truncated_to)

    def outdated_snapshots(self, task: FlushTask) -> list[Path]:
        """Return the snapshots that `task` has written, but that describe batches which were truncated meanwhile."""
        truncated_to = self._truncated_to
        if truncated_to is None:
            return []
        return [snapshot.path for snapshot in task.snapshots if snapshot.end_offset > truncated_to]
