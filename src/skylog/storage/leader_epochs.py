"""Which leader epoch wrote from which offset on: the history that finds where two logs part (KIP-101).

File `leader-epoch-checkpoint` in the partition's directory, in Kafka's form: a version line, a count, and lines of
`epoch start_offset`. It is replaced whole when an epoch begins, which is rare. Batches carry their epoch, so what a
crash takes from the file is found again by reading the batches after the recovery point.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from pathlib import Path
from typing import Final

from skylog.model import NO_EPOCH, NO_OFFSET
from skylog.storage.files import replace_file

logger = logging.getLogger(__name__)

FILE_NAME: Final = "leader-epoch-checkpoint"
_VERSION: Final = "0"


class LeaderEpochs:
    """Epochs and their start offsets, both ascending."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME
        self._entries: list[tuple[int, int]] = self._load()

    @property
    def latest(self) -> int:
        return self._entries[-1][0] if self._entries else NO_EPOCH

    def begin(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` writes from `start_offset` on. Entries that began there or later wrote nothing."""
        if epoch <= self.latest:
            return
        self._entries = [entry for entry in self._entries if entry[1] < start_offset]
        self._entries.append((epoch, start_offset))
        self._save()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch at or below `epoch`, and where it ended; (-1, -1) where none is known."""
        index = bisect_right(self._entries, epoch, key=lambda entry: entry[0])
        if not index or epoch > self.latest:
            return NO_EPOCH, NO_OFFSET
        end_offset = self._entries[index][1] if index < len(self._entries) else log_end_offset
        return self._entries[index - 1][0], end_offset

    def epoch_of(self, offset: int) -> int:
        """The epoch that wrote `offset`."""
        index = bisect_right(self._entries, offset, key=lambda entry: entry[1])
        return self._entries[index - 1][0] if index else NO_EPOCH

    def truncate_to(self, end_offset: int) -> None:
        """Forget epochs that began at or after `end_offset`."""
        kept = [entry for entry in self._entries if entry[1] < end_offset]
        if kept != self._entries:
            self._entries = kept
            self._save()

    def _save(self) -> None:
        lines = [_VERSION, str(len(self._entries)), *(f"{epoch} {start}" for epoch, start in self._entries)]
        replace_file(self._path, ("\n".join(lines) + "\n").encode(), durable=False)

    def _load(self) -> list[tuple[int, int]]:
        try:
            lines = self._path.read_text().splitlines()
        except FileNotFoundError:
            return []
        try:
            return [(int(epoch), int(start)) for epoch, start in (line.split() for line in lines[2:])]
        except ValueError as error:
            logger.warning("%s is not readable and starts anew: %s", self._path, error)
            return []
