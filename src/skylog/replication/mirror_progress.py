"""How far a partition is mirrored: a state machine of one leadership on the target. The time is handed in.

Before anything is copied, and after every lost connection or new leader of the source, the two logs are compared
(`compare`): the last batch here must be the batch that the source has at the same offsets. If it is not, the source has
lost records that were copied before, by a truncation or an unclean election. The partition is then DIVERGED, and stays
it until someone decides what to do: nothing is overwritten.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from skylog.records import BatchHeader

NO_EPOCH: Final = -1


class Status(StrEnum):
    """STARTING: not compared yet. FAILING: copying does not work now, and is tried again."""

    STARTING = "starting"
    MIRRORING = "mirroring"
    FAILING = "failing"
    DIVERGED = "diverged"


class MirrorProgress:
    """The state of one partition. `skipped` counts offsets that the source deleted before they were copied."""

    def __init__(self, end_offset: int, now_s: float) -> None:
        self.status = Status.STARTING
        self.end_offset = end_offset
        self.source_end = end_offset
        self.source_epoch = NO_EPOCH  # of the last copied batch
        self.skipped = 0
        self.errors = 0
        self.last_error = ""
        self._caught_up_at = now_s

    @property
    def is_attached(self) -> bool:
        """Whether the logs were compared, and more can be copied."""
        return self.status is Status.MIRRORING

    @property
    def is_diverged(self) -> bool:
        return self.status is Status.DIVERGED

    @property
    def lag(self) -> int:
        """How many offsets of the source are not here yet, as of the last response."""
        return max(0, self.source_end - self.end_offset)

    def lag_s(self, now_s: float) -> float:
        """Return for how long the partition has not been caught up: 0 while nothing is missing."""
        return 0.0 if self.is_attached and not self.lag else max(0.0, now_s - self._caught_up_at)

    # -- events

    def attached(self, source_epoch: int) -> None:
        """The logs agree."""
        if not self.is_diverged:
            self.status, self.source_epoch = Status.MIRRORING, max(source_epoch, self.source_epoch)

    def copied(self, end_offset: int, source_epoch: int) -> None:
        """Batches were stored."""
        self.end_offset = end_offset
        self.source_epoch = max(source_epoch, self.source_epoch)

    def answered(self, source_end: int, now_s: float, *, has_records: bool) -> None:
        """The source has answered a fetch. Without records there is nothing more to copy, whatever its end offset."""
        self.source_end = max(source_end, self.end_offset)
        if not has_records or self.end_offset >= source_end:
            self._caught_up_at = now_s

    def failed(self, reason: str) -> None:
        """Copying has failed. The logs are compared again before it goes on."""
        self.errors += 1
        self.last_error = reason
        if not self.is_diverged:
            self.status = Status.FAILING

    def detached(self) -> None:
        """The connection or the source's leader has changed: compare the logs again."""
        if self.is_attached:
            self.status = Status.STARTING

    def diverged(self, reason: str) -> None:
        self.errors += 1
        self.last_error = reason
        self.status = Status.DIVERGED

    def restarted(self, start_offset: int) -> None:
        """The source's log begins after the end of this one, which begins again there."""
        if self.end_offset > 0:
            self.skipped += start_offset - self.end_offset
        self.end_offset = start_offset


def compare(ours: BatchHeader, theirs: BatchHeader, *, is_compacted: bool) -> str | None:
    """Compare the last batch here with the one that the source has at its last offset. Return how they differ, or None.

    Compaction keeps the offsets, the producer and the sequence of a batch that it changes, or removes the batch.
    """
    if theirs.base_offset > ours.last_offset and is_compacted:
        return None
    if (theirs.base_offset, theirs.last_offset) != (ours.base_offset, ours.last_offset):
        return (
            f"the last batch here has the offsets {ours.base_offset}-{ours.last_offset}, "
            f"the source has {theirs.base_offset}-{theirs.last_offset} in its place"
        )
    if theirs.crc == ours.crc:
        return None
    if is_compacted and _producer(ours) == _producer(theirs):
        return None
    return f"the source has other records at the offsets {ours.base_offset}-{ours.last_offset}"


def _producer(header: BatchHeader) -> tuple[int, int, int]:
    return header.producer_id, header.producer_epoch, header.base_sequence
