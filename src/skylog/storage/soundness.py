"""Which of the batches that a segment was found with are sound.

What this process appended it has checked before. What it found in a file may have been damaged since it was written, so
it is checked before it is first read: by a `PartCheck`, off the event loop, a few megabytes at a time. The answer is
remembered, damage included, so that nothing is looked at twice.

The entries of the offset index are the fixed points: each is the start of a batch. So damage does not reach beyond the
next entry, and sound batches are searched for only up to there.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from skylog.errors import SkylogError
from skylog.records import InvalidBatchError
from skylog.storage.files import LogFile
from skylog.storage.ranges import Ranges
from skylog.storage.scan import TornLogError, find_sound, scan

logger = logging.getLogger(__name__)

PART_BYTES: Final = 4 * 1024 * 1024  # that one check covers, or as much as is to be read


class Check(Protocol):
    """Work that must be done before something can be read. Two with the same `key` are the same work."""

    @property
    def key(self) -> Hashable: ...

    def run(self) -> None:
        """Do it, in any thread. Raises OSError."""

    def finish(self) -> None:
        """Take over what was found, in the thread that appends."""


class UncheckedError(SkylogError):
    """Something is to be read that has not been checked since it was found. Try again after `check`."""

    def __init__(self, check: Check) -> None:
        super().__init__("the batches have not been checked since they were found")
        self.check = check


class Damage(NamedTuple):
    """Bytes that are no sound batch, and the offsets that lie in them or are missing because of them."""

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
    """What is known of the first `found_bytes` of a segment's file. Used from the thread that appends."""

    __slots__ = ("_checked", "damages", "found_bytes")

    def __init__(self) -> None:
        self.found_bytes = 0
        self.damages: list[Damage] = []
        self._checked = Ranges()

    def trust(self, start: int, end: int) -> None:
        """Take the batches between two positions as sound."""
        self._checked.add(start, end)

    def note(self, start: int, end: int, damages: Iterable[Damage]) -> None:
        """Take the batches between two positions as checked, with the damage among them."""
        known = {damage.position for damage in self.damages}
        self.damages = sorted([*self.damages, *(damage for damage in damages if damage.position not in known)])
        self._checked.add(start, end)

    def forget(self) -> None:
        self.damages = []
        self._checked.clear()

    def checked_to(self, position: int) -> int:
        """Up to where everything from `position` on has been checked, damage included."""
        return self._checked.end_at(position)

    def damage_at(self, position: int) -> Damage | None:
        """The damage that begins at `position`."""
        index = bisect_right(self.damages, position, key=_position) - 1
        return self.damages[index] if index >= 0 and self.damages[index].position == position else None

    def sound_to(self, position: int) -> int:
        """Up to where everything from `position` on, the start of a sound batch, is known to be sound."""
        end = self._checked.end_at(position)
        index = bisect_right(self.damages, position, key=_position)
        return min(end, self.damages[index].position) if index < len(self.damages) else end


def _position(damage: Damage) -> int:
    return damage.position


class PartCheck:
    """Checks the batches of a file between two entries of its index. `run` it in any thread.

    `entries` are offset and position of the entries from the first to the last of the part; `stop` and `end_offset` are
    where the part ends.
    """

    def __init__(
        self, soundness: Soundness, file: LogFile, entries: Sequence[tuple[int, int]], stop: int, end_offset: int
    ) -> None:
        self.stop = stop
        self.damages: list[Damage] = []
        self._soundness = soundness
        self._file = file
        self._entries = entries
        self._end_offset = end_offset

    @property
    def key(self) -> Hashable:
        return self._soundness, self._entries[0], self.stop

    def run(self) -> None:
        """Raises OSError."""
        due_offset, position = self._entries[0]
        while position < self.stop:
            try:
                for start, header in scan(self._file, position, due_offset, self._end_offset):
                    if start >= self.stop:
                        break
                    position, due_offset = start + header.size_bytes, header.end_offset
                return
            except TornLogError as torn:
                if torn.position >= self.stop:
                    return
                damage = self._measure(torn)
                self.damages.append(damage)
                logger.error(
                    "%s: bytes %d to %d, offsets %d to %d, are damaged: %s",
                    self._file.path,
                    damage.position,
                    damage.end,
                    damage.due_offset,
                    damage.next_offset,
                    torn,
                )
                position, due_offset = damage.end, damage.next_offset

    def finish(self) -> None:
        self._soundness.note(self._entries[0][1], self.stop, self.damages)

    def _measure(self, torn: TornLogError) -> Damage:
        """How far the damage reaches: to the next sound batch, at most to the next entry of the index."""
        index = bisect_right(self._entries, torn.position, key=lambda entry: entry[1])
        if index < len(self._entries):
            next_offset, end = self._entries[index]
        else:
            next_offset, end = self._end_offset, self.stop
        found = find_sound(self._file, torn.position + 1, torn.due_offset, next_offset, end)
        if found is not None:
            end, next_offset = found[0], found[1].base_offset
        return Damage(torn.position, end, torn.due_offset, next_offset, str(torn))
