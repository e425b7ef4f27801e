"""Checks again what a log has stored: batches of earlier processes and of this one, a part at a time.

A disk may damage a batch at any time, and damage to a replica that is never read would stay unknown until the replica
becomes the leader. The scrub covers the batches below the high watermark: those are never truncated by a clean
election, and other replicas have them too. Batches above it are checked when a follower has rejected them.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from skylog.storage.segment import Segment
from skylog.storage.soundness import PartCheck

if TYPE_CHECKING:
    from skylog.storage.log import Log


class ScrubPart:
    """Checks a part of a segment. The scrub continues at `next_offset`. Implements `Check`."""

    def __init__(self, log: Log, segment: Segment, check: PartCheck) -> None:
        self._log = log
        self._segment = segment
        self._check = check
        self.next_offset = check.end_offset
        self.size_bytes = check.stop - check.start

    @property
    def key(self) -> Hashable:
        return "scrub", self._check.key

    def run(self) -> None:
        """Raises OSError."""
        self._check.run()

    def finish(self) -> None:
        segment, check = self._segment, self._check
        soundness = segment.soundness
        if check.soundness is not soundness or segment not in self._log.segments:
            return  # the segment was truncated, compacted or dropped meanwhile
        if any(damage.end > soundness.found_bytes for damage in check.damages):
            segment.distrust(self._log.end_of(segment))
        soundness.note(check.start, min(check.stop, soundness.found_bytes), check.damages)


def plan_scrub(log: Log, offset: int, max_bytes: int, end_offset: int | None = None) -> ScrubPart | None:
    """Return the check of the batches from `offset` on, about `max_bytes` of them; None if the scrub is at its end.

    That is `end_offset`, or the high watermark. Raises UncheckedError if indexes must be rebuilt first, and KafkaError
    if a file cannot be opened.
    """
    offset = max(offset, log.log_start_offset)
    end_offset = log.high_watermark if end_offset is None else end_offset
    while offset < end_offset and not log.is_retired:
        segment = log.indexed_segment(offset)
        part = _plan(log, segment, offset, max_bytes, end_offset)
        if part is not None:
            return part
        offset = log.end_of(segment)
    return None


def _plan(log: Log, segment: Segment, offset: int, max_bytes: int, end_offset: int) -> ScrubPart | None:
    """Return a part that begins and ends at index entries; None if there is no entry below `end_offset`."""
    entry = segment.offset_index.lookup(offset)
    end = log.end_of(segment), segment.size_bytes
    if end[0] > end_offset:
        end = segment.offset_index.lookup(end_offset)
    if entry[1] >= end[1]:
        return None
    return ScrubPart(log, segment, segment.part(entry, end, max_bytes, log.epochs.epoch_of))
