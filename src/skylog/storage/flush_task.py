"""What must reach the disk for a log to be safe up to an offset: made on the event loop, run elsewhere."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path

from skylog.storage.files import LogFile, sync_directory, sync_file
from skylog.storage.folder_name import FolderName
from skylog.storage.producer_state import Snapshot
from skylog.storage.segment import Segment

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FlushTask:
    """What must reach the disk for a log to be safe up to `end_offset`. `run` blocks; call it in another thread.

    Meanwhile the log goes on: it appends and rolls, and retention may remove any of the files by name.
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
            except OSError as error:  # without it a recovery reads more of the log
                logger.warning("%s cannot be written: %s", snapshot.path, error)
        for path in self.side_files:
            sync_file(path)
        for directory in self.directories:
            with contextlib.suppress(FileNotFoundError):  # the topic has been deleted
                sync_directory(directory)
