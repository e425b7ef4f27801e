"""The start offset of each leader epoch: the history that shows where two logs diverge (KIP-101).

File `leader-epoch-checkpoint` in the partition's directory, in Kafka's format: a version line, a count, and lines of
`epoch start_offset`. It is replaced as a whole when an epoch starts, which is rare, and synced with the epoch's
batches. Batches carry their epoch. So entries that a crash of the machine loses or brings back are restored from the
batches after the recovery point, and from all of them if the file is lost.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from skylog.durable_files import replace_file
from skylog.model import NO_EPOCH, NO_OFFSET

logger = logging.getLogger(__name__)

FILE_NAME: Final = "leader-epoch-checkpoint"
_VERSION: Final = "0"


class LeaderEpochs:
    """Epochs and their start offsets, both ascending. `unsynced` is true while the file may not be on disk yet.

    `is_lost` means that the file was missing or damaged: `restore` it from all batches there are.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self.unsynced = False
        self.is_lost = False
        self._entries: list[tuple[int, int]] = self._load()

    @property
    def latest(self) -> int:
        return self._entries[-1][0] if self._entries else NO_EPOCH

    def begin(self, epoch: int, start_offset: int) -> None:
        """Start `epoch` at `start_offset`. Replaces entries that started there or later: they wrote nothing."""
        if epoch <= self.latest:
            return
        self._save([entry for entry in self._entries if entry[1] < start_offset] + [(epoch, start_offset)])

    def end_offset_for(self, epoch: int, log_end_offset: int, leader_epoch: int = NO_EPOCH) -> tuple[int, int]:
        """Return the largest epoch at or below `epoch` and its end offset; (-1, -1) for a future epoch.

        `leader_epoch` is the current one, which may not have written anything yet. As in Kafka, an epoch before all
        known ones ends where the first of them starts.
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
        """Return the epoch that wrote `offset`, in any thread. NO_EPOCH if it is unknown."""
        entries = self._entries
        index = bisect_right(entries, offset, key=lambda entry: entry[1])
        return entries[index - 1][0] if index else NO_EPOCH

    def truncate_to(self, end_offset: int) -> None:
        """Remove epochs that started at or after `end_offset`."""
        kept = [entry for entry in self._entries if entry[1] < end_offset]
        if kept != self._entries:
            self._save(kept)

    def restore(self, begun: Sequence[tuple[int, int]], log_end_offset: int) -> None:
        """Replace the entries after the recovery point by `begun`: the epochs of the batches that were found there.

        The first of them may have begun before.
        """
        start_offset = begun[0][1] if begun else log_end_offset
        entries = [entry for entry in self._entries if entry[1] < start_offset]
        for entry in begun:
            if not entries or entry[0] > entries[-1][0]:
                entries.append(entry)
        if entries != self._entries:
            self._save(entries)

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
            self.is_lost = True
        except ValueError as error:
            self.is_lost = True
            logger.warning("%s is damaged and will be rewritten: %s", self.path, error)
        return []
