"""Which leader epoch wrote from which offset on: the history that finds where two logs part (KIP-101).

File `leader-epoch-checkpoint` in the partition's directory, in Kafka's form: a version line, a count, and lines of
`epoch start_offset`. It is replaced whole when an epoch begins, which is rare, and reaches the disk with the batches
that the epoch wrote. Batches carry their epoch, so what a crash takes from the file is found again by reading the
batches after the recovery point.
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
    """Epochs and their start offsets, both ascending. `unsynced` tells that the file may not be on disk yet."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self.unsynced = False
        self._entries: list[tuple[int, int]] = self._load()

    @property
    def latest(self) -> int:
        return self._entries[-1][0] if self._entries else NO_EPOCH

    def begin(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` writes from `start_offset` on. Entries that began there or later wrote nothing."""
        if epoch <= self.latest:
            return
        self._save([entry for entry in self._entries if entry[1] < start_offset] + [(epoch, start_offset)])

    def end_offset_for(self, epoch: int, log_end_offset: int, leader_epoch: int = NO_EPOCH) -> tuple[int, int]:
        """The largest epoch at or below `epoch`, and where it ended; (-1, -1) for one that is still to come.

        `leader_epoch` is the present one, which may not have written anything yet. As in Kafka an epoch before all
        known ones has ended where the first of them began.
        """
        entries = self._entries
        if leader_epoch > self.latest:
            entries = [*entries, (leader_epoch, log_end_offset)]
        if not entries or epoch > entries[-1][0]:
            return NO_EPOCH, NO_OFFSET
        index = bisect_right(entries, epoch, key=lambda entry: entry[0])
        end_offset = entries[index][1] if index < len(entries) else log_end_offset
        return entries[index - 1][0] if index else epoch, end_offset

    def epoch_of(self, offset: int) -> int:
        """The epoch that wrote `offset`."""
        index = bisect_right(self._entries, offset, key=lambda entry: entry[1])
        return self._entries[index - 1][0] if index else NO_EPOCH

    def truncate_to(self, end_offset: int) -> None:
        """Forget epochs that began at or after `end_offset`."""
        kept = [entry for entry in self._entries if entry[1] < end_offset]
        if kept != self._entries:
            self._save(kept)

    def _save(self, entries: list[tuple[int, int]]) -> None:
        lines = [_VERSION, str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries)]
        replace_file(self.path, ("\n".join(lines) + "\n").encode(), durable=False)
        self._entries = entries
        self.unsynced = True

    def _load(self) -> list[tuple[int, int]]:
        try:
            version, count, *lines = self.path.read_text().splitlines()
            entries = [(int(epoch), int(start)) for epoch, start in (line.split() for line in lines)]
            if version != _VERSION or int(count) != len(entries) or entries != sorted(entries):
                raise ValueError("version, count or order does not match")
            return entries
        except FileNotFoundError:
            return []
        except ValueError as error:
            logger.warning("%s is not readable and starts anew: %s", self.path, error)
            return []
