"""Tracks which batches of a segment are checked, and which of them are damaged.

Batches that this process appends are checked before. Existing batches may have been damaged since they were written, so
a `PartCheck` checks them before they are first read: off the event loop, a few megabytes at a time. The result is
remembered, including damage, so that nothing is checked twice for a read. A scrub checks everything again (`scrub`).

Every entry of the offset index is the start of a batch. So damage never extends beyond the next entry, and the search
for the next sound batch ends there.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from skylog.errors import SkylogError
from skylog.model import NO_EPOCH
from skylog.records import BatchHeader, InvalidBatchError
from skylog.storage.files import LogFile
from skylog.storage.ranges import Ranges
from skylog.storage.scan import CHUNK_BYTES, TornLogError, find_sound, scan

logger = logging.getLogger(__name__)

PART_BYTES: Final = 4 * 1024 * 1024  # one check covers this much, or the size of the read if that is larger

EpochOf = Callable[[int], int]
"""Returns the leader epoch that wrote an offset, or NO_EPOCH if that is unknown."""


class Check(Protocol):
    """Work that must be done before batches can be read. Checks with equal `key` do the same work."""

    @property
    def key(self) -> Hashable: ...

    def run(self) -> None:
        """Do the work, in any thread. Raises OSError."""

    def finish(self) -> None:
        """Store the result, in the thread that appends."""


class UncheckedError(SkylogError):
    """The requested batches have not been checked yet. Run `check` and retry."""

    def __init__(self, check: Check) -> None:
        super().__init__("the batches have not been checked yet")
        self.check = check


class Damage(NamedTuple):
    """A range of bytes without a valid batch, and the range of offsets that is lost with it."""

    position: int
    end: int
    due_offset: int
    next_offset: int
    reason: str

    def to_error(self) -> InvalidBatchError:
        return InvalidBatchError(
            f"damaged at byte {self.position}, offset {self.due_offset}: {self.reason}", corrupt=True
        )


class Soundness:
    """The check results for the first `found_bytes` of a segment's file. Used from the thread that appends."""

    __slots__ = ("_checked", "damages", "found_bytes")

    def __init__(self, found_bytes: int = 0) -> None:
        self.found_bytes = found_bytes
        self.damages: list[Damage] = []
        self._checked = Ranges()

    def trust(self, start: int, end: int) -> None:
        """Record that the batches between two positions are sound."""
        self._checked.add(start, end)

    def note(self, start: int, end: int, damages: Iterable[Damage]) -> None:
        """Record that the batches between two positions are checked, with the damage found."""
        known = {damage.position for damage in self.damages}
        self.damages = sorted([*self.damages, *(damage for damage in damages if damage.position not in known)])
        self._checked.add(start, end)

    def heal(self, damage: Damage) -> None:
        """Record that a damaged range has been repaired."""
        self.damages = [each for each in self.damages if each != damage]

    def forget(self) -> None:
        self.damages = []
        self._checked.clear()

    def checked_to(self, position: int) -> int:
        """Return the end of the checked range that contains `position`. The range may include damage."""
        return self._checked.end_at(position)

    def damage_at(self, position: int) -> Damage | None:
        """Return the damage that starts at `position`."""
        index = bisect_right(self.damages, position, key=_position) - 1
        return self.damages[index] if index >= 0 and self.damages[index].position == position else None

    def sound_to(self, position: int) -> int:
        """Return the end of the range of batches known to be sound that starts at `position`, a batch start."""
        end = self._checked.end_at(position)
        index = bisect_right(self.damages, position, key=_position)
        return min(end, self.damages[index].position) if index < len(self.damages) else end


def _position(damage: Damage) -> int:
    return damage.position


class PartCheck:
    """Checks the batches of a file between two index entries. Call `run` in any thread.

    `entries` are offset and position of each index entry in the part. The part ends at position `stop` and offset
    `end_offset`. The CRC does not cover the leader epoch of a batch: `epoch_of` checks it, if given.
    """

    def __init__(
        self,
        soundness: Soundness,
        file: LogFile,
        entries: Sequence[tuple[int, int]],
        stop: int,
        end_offset: int,
        epoch_of: EpochOf | None = None,
    ) -> None:
        self.stop = stop
        self.end_offset = end_offset
        self.damages: list[Damage] = []
        self.soundness = soundness
        self._file = file
        self._entries = entries
        self._epoch_of = epoch_of

    @property
    def start(self) -> int:
        return self._entries[0][1]

    @property
    def key(self) -> Hashable:
        return self.soundness, self._entries[0], self.stop

    def run(self) -> None:
        """Raises OSError."""
        due_offset, position = self._entries[0]
        while position < self.stop:
            chunk_bytes = min(CHUNK_BYTES, self.stop - position)
            try:
                for start, header in scan(self._file, position, due_offset, self.end_offset, chunk_bytes):
                    self._check_epoch(start, due_offset, header)
                    position, due_offset = start + header.size_bytes, header.end_offset
                    if position >= self.stop:
                        return
                return
            except TornLogError as torn:
                damage = self._measure(torn)
                self.damages.append(damage)
                self._report(damage)
                position, due_offset = damage.end, damage.next_offset

    def _check_epoch(self, position: int, due_offset: int, header: BatchHeader) -> None:
        if self._epoch_of is not None:
            expected = self._epoch_of(header.base_offset)
            if expected not in (NO_EPOCH, header.partition_leader_epoch):
                reason = f"batch has leader epoch {header.partition_leader_epoch}, expected {expected}"
                raise TornLogError(position, due_offset, reason)

    def _report(self, damage: Damage) -> None:
        """Log damage when it is first found."""
        if all(known.position != damage.position for known in self.soundness.damages):
            logger.error(
                "%s: bytes %d to %d, offsets %d to %d, are damaged: %s",
                self._file.path,
                damage.position,
                damage.end,
                damage.due_offset,
                damage.next_offset,
                damage.reason,
            )

    def finish(self) -> None:
        self.soundness.note(self.start, self.stop, self.damages)

    def _measure(self, torn: TornLogError) -> Damage:
        """Return the extent of the damage: up to the next sound batch, at most up to the next index entry."""
        index = bisect_right(self._entries, torn.position, key=lambda entry: entry[1])
        if index < len(self._entries):
            next_offset, end = self._entries[index]
        else:
            next_offset, end = self.end_offset, self.stop
        found = find_sound(self._file, torn.position + 1, torn.due_offset, next_offset, end)
        if found is not None:
            end, next_offset = found[0], found[1].base_offset
        return Damage(torn.position, end, torn.due_offset, next_offset, str(torn))
