"""Makes a log durable up to an offset: created on the event loop, run in another thread."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path

from skylog.durable_files import sync_directory, sync_file
from skylog.storage.files import LogFile
from skylog.storage.folder_name import FolderName
from skylog.storage.producer_snapshot import Snapshot
from skylog.storage.segment import Segment

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FlushTask:
    """Everything to sync so that a log is durable up to `end_offset`. `run` blocks: call it in another thread.

    Meanwhile the log continues: it appends and rolls, and retention may unlink any of the files.
    """

    end_offset: int
    files: list[LogFile]
    closed: list[Segment]
    side_files: list[Path]
    directories: list[Path]
    snapshots: list[Snapshot]
    folder_name: FolderName
    error: OSError | None = None

    def run(self) -> None:
        """Raises OSError."""
        if self.error is not None:
            raise self.error
        for file in self.files:
            file.sync()
        for segment in self.closed:
            segment.sync_indexes()
        for snapshot in self.snapshots:
            try:
                self.folder_name.use(snapshot.write)
            except OSError as error:  # without the snapshot, recovery reads more of the log
                logger.warning("cannot write %s: %s", snapshot.path, error)
        for path in self.side_files:
            sync_file(path)
        for directory in self.directories:
            with contextlib.suppress(FileNotFoundError):  # the topic has been deleted
                sync_directory(directory)
